"""`litellm`: completion, acompletion, streams, text completions, responses, and its errors."""

import asyncio
import json
import sys

import litellm

QUESTION = [{"role": "user", "content": "hello there"}]
COMMON = {"api_base": f"{sys.argv[1]}/v1", "api_key": "none", "max_retries": 0}
CHAT = {"model": "openai/scripted", "messages": QUESTION, **COMMON}


def joined(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def asynchronous():
    whole = await litellm.acompletion(**CHAT)
    stream = await litellm.acompletion(stream=True, **CHAT)
    return [whole.choices[0].message.content, joined([chunk async for chunk in stream])]


found = {}
whole = litellm.completion(
    **CHAT,
    temperature=0.3,
    top_p=0.9,
    user="somebody",
    metadata={"purpose": "test"},
    timeout=60,
    extra_body={"top_k": 20},
)
found["whole"] = [
    whole.choices[0].message.content,
    whole.choices[0].finish_reason,
    whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens,
    whole.usage.prompt_tokens_details.cached_tokens is not None,
]
chunks = list(litellm.completion(stream=True, stream_options={"include_usage": True}, **CHAT))
found["stream"] = [
    joined(chunks),
    [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1],
    chunks[-1].usage.completion_tokens == whole.usage.completion_tokens,
]
rebuilt = litellm.stream_chunk_builder(chunks, messages=QUESTION)
found["rebuilt"] = rebuilt.choices[0].message.content
cut = litellm.completion(max_tokens=2, n=2, **CHAT)
found["cut"] = [
    [choice.message.content for choice in cut.choices],
    [choice.finish_reason for choice in cut.choices],
]
found["async"] = asyncio.run(asynchronous())
text = litellm.text_completion(
    model="text-completion-openai/scripted", prompt="hello there", max_tokens=3, **COMMON
)
found["text"] = [text.choices[0].text, text.choices[0].finish_reason]
response = litellm.responses(model="openai/scripted", input="hello there", **COMMON)
found["response"] = [response.output[0].content[0].text, response.status]
events = list(
    litellm.responses(model="openai/scripted", input="hello there", stream=True, **COMMON)
)
found["response stream"] = [
    "".join(event.delta for event in events if event.type == "response.output_text.delta"),
    str(getattr(events[-1].type, "value", events[-1].type)),
]
brief = {
    **CHAT,
    "messages": [{"role": "user", "content": "word " * 200}],
    "extra_body": {"timeout": 0.1},
}
found["aborted"] = litellm.completion(**brief).choices[0].provider_specific_fields
try:
    list(litellm.completion(stream=True, **brief))
except litellm.ServiceUnavailableError:
    found["aborted stream"] = "ServiceUnavailableError"

try:
    litellm.completion(**{**CHAT, "messages": [{"role": "user", "content": "x" * 20_000}]})
except litellm.ContextWindowExceededError:
    found["too long"] = "ContextWindowExceededError"
except litellm.BadRequestError as error:
    found["too long"] = f"BadRequestError: {error}"
try:
    litellm.completion(**{**CHAT, "model": "openai/gpt-6"})
except litellm.NotFoundError:
    found["another model"] = "NotFoundError"

print(json.dumps(found))
