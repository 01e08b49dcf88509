"""`langchain-openai`: invoke, stream, astream, batch, and the same over the Responses API."""

import asyncio
import json
import sys

import openai
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI

QUESTION = "hello there"


def model(**fields):
    return ChatOpenAI(
        base_url=f"{sys.argv[1]}/v1", api_key="none", model="scripted", max_retries=0, **fields
    )


def text(message):
    return message.text if isinstance(message.text, str) else message.text()


def usage(message):
    told = message.usage_metadata
    return [
        told["input_tokens"] + told["output_tokens"] == told["total_tokens"],
        "cache_read" in told["input_token_details"],
    ]


async def streamed():
    return [
        "".join([text(chunk) async for chunk in chat.astream(QUESTION)])
        for chat in (model(), model(use_responses_api=True))
    ]


found = {}
chat = model(temperature=0.2)
answer = chat.invoke(
    [
        SystemMessage("Be brief."),
        HumanMessage("first"),
        AIMessage("one"),
        HumanMessage([{"type": "text", "text": QUESTION}]),
    ]
)
found["invoke"] = [text(answer), answer.response_metadata["finish_reason"], *usage(answer)]
cut = model(max_tokens=2, logprobs=True).invoke(QUESTION)
found["cut"] = [
    text(cut),
    cut.response_metadata["finish_reason"],
    "".join(one["token"] for one in cut.response_metadata["logprobs"]["content"]),
]
chunks = list(model(stream_usage=True).stream(QUESTION))
joined = chunks[0]
for chunk in chunks[1:]:
    joined += chunk
found["stream"] = [text(joined), joined.response_metadata["finish_reason"], *usage(joined)]
found["astream"] = asyncio.run(streamed())
found["batch"] = [text(one) for one in chat.batch(["a", "b", "c"])]
found["text"] = OpenAI(
    base_url=f"{sys.argv[1]}/v1", api_key="none", model="scripted", max_tokens=3, max_retries=0
).invoke(QUESTION)

responses = model(use_responses_api=True)
answer = responses.invoke([SystemMessage("Be brief."), HumanMessage(QUESTION)])
found["response"] = [text(answer), answer.response_metadata["status"], *usage(answer)]
again = responses.invoke([HumanMessage(QUESTION), answer, HumanMessage("second")])
found["response given back"] = text(again)
chunks = list(responses.stream(QUESTION))
joined = chunks[0]
for chunk in chunks[1:]:
    joined += chunk
found["response stream"] = [text(joined), joined.response_metadata["status"], *usage(joined)]
cut = model(use_responses_api=True, max_tokens=2).invoke(QUESTION)
found["cut response"] = [
    text(cut),
    cut.response_metadata["status"],
    cut.response_metadata["incomplete_details"],
]

brief = {"extra_body": {"timeout": 0.1}}
aborted = model(**brief).invoke("word " * 200)
response = model(use_responses_api=True, **brief).invoke("word " * 200)
found["aborted"] = [
    aborted.response_metadata["finish_reason"],
    response.response_metadata["status"],
    response.response_metadata["incomplete_details"],
]

try:
    chat.invoke("x" * 20_000)
except openai.BadRequestError as error:
    found["too long"] = [isinstance(error, ContextOverflowError), error.code]

print(json.dumps(found))
