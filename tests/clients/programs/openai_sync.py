"""The `openai` package, synchronous: every way to ask, and its exceptions."""

import json
import sys

import openai

address = sys.argv[1]
client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
MODEL = "scripted"
MESSAGES = [{"role": "user", "content": "hello there"}]
found = {}

whole = client.chat.completions.create(
    model=MODEL,
    messages=MESSAGES,
    temperature=0.5,
    user="somebody",
    metadata={"purpose": "test"},
    extra_body={"top_k": 20, "min_p": 0.05},
)
found["whole"] = [
    whole.choices[0].message.content,
    whole.choices[0].finish_reason,
    whole.choices[0].finish_detail,
    whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens,
    whole.usage.prompt_tokens_details.cached_tokens is not None,
]

chunks = list(
    client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
)
found["streamed"] = [
    "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
    [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1],
    chunks[-1].usage.completion_tokens == whole.usage.completion_tokens,
]

with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
    kinds = [event.type for event in stream]
    final = stream.get_final_completion()
found["helper"] = [
    "content.delta" in kinds,
    kinds.count("content.done"),
    final.choices[0].message.content,
    final.choices[0].finish_reason,
]

several = client.chat.completions.create(
    model=MODEL, messages=MESSAGES, n=2, logprobs=True, top_logprobs=1, max_tokens=3
)
found["several"] = [
    [choice.message.content for choice in several.choices],
    [choice.finish_reason for choice in several.choices],
    ["".join(one.token for one in choice.logprobs.content) for choice in several.choices],
]

raw = client.chat.completions.with_raw_response.create(
    model=MODEL, messages=MESSAGES, extra_headers={"X-Request-Id": "mine-1"}
)
found["raw"] = [raw.headers["x-request-id"], raw.parse().choices[0].message.content]

with client.chat.completions.with_streaming_response.create(
    model=MODEL, messages=MESSAGES, stream=True
) as response:
    lines = [line for line in response.iter_lines() if line]
found["streaming response"] = [response.status_code, lines[-1]]

text = client.completions.create(model=MODEL, prompt="hello there", max_tokens=3)
pieces = client.completions.create(model=MODEL, prompt="hello there", max_tokens=3, stream=True)
found["text"] = [
    text.choices[0].text,
    text.choices[0].finish_reason,
    "".join(piece.choices[0].text for piece in pieces if piece.choices),
]

response = client.responses.create(
    model=MODEL,
    instructions="Be brief.",
    input=[
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": [{"type": "input_text", "text": "hello there"}]},
    ],
    metadata={"purpose": "test"},
    store=False,
)
found["response"] = [
    response.output_text,
    response.status,
    response.metadata,
    response.usage.input_tokens_details.cached_tokens is not None,
]
again = client.responses.create(
    model=MODEL,
    input=[
        {"role": "user", "content": "first"},
        *(item.model_dump(exclude_none=True) for item in response.output),
        {"role": "user", "content": "second"},
    ],
)
found["response given back"] = again.output_text
cut = client.responses.create(
    model=MODEL,
    input="hello there",
    max_output_tokens=2,
    include=["message.output_text.logprobs"],
)
found["cut response"] = [
    cut.output_text,
    cut.status,
    cut.incomplete_details.reason,
    "".join(one.token for one in cut.output[0].content[0].logprobs),
]
events = list(client.responses.create(model=MODEL, input="hello there", stream=True))
found["response events"] = [
    "".join(event.delta for event in events if event.type == "response.output_text.delta"),
    [event.sequence_number for event in events] == list(range(len(events))),
    events[0].type,
    events[-1].type,
    events[-1].response.output_text,
]
with client.responses.stream(model=MODEL, input="hello there") as stream:
    snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
    final = stream.get_final_response()
found["response helper"] = [snapshots[-1], final.output_text, final.status]

# What the server ends, here by the deadline that the request asked for.
brief = {"timeout": 0.1}
aborted = [{"role": "user", "content": "word " * 200}]
with client.chat.completions.stream(model=MODEL, messages=aborted, extra_body=brief) as stream:
    final = stream.get_final_completion()
response = client.responses.create(model=MODEL, input=aborted, extra_body=brief)
found["aborted"] = [
    final.choices[0].finish_reason,
    [response.status, response.incomplete_details.reason, response.finish_detail],
]

found["models"] = [
    [model.id for model in client.models.list()],
    client.models.retrieve(MODEL).id,
]


def refused(kind, **arguments):
    fields = {"model": MODEL, "messages": MESSAGES, **arguments}
    try:
        client.chat.completions.create(**fields)
    except kind as error:
        return [type(error).__name__, error.status_code, error.code, error.param]
    return "no error"


long = [{"role": "user", "content": "x" * 20_000}]
found["errors"] = [
    refused(openai.NotFoundError, model="gpt-6"),
    refused(openai.BadRequestError, messages=long),
    refused(openai.BadRequestError, messages=long, stream=True),
    refused(openai.BadRequestError, temperature=9),
    refused(openai.BadRequestError, tools=[{"type": "function", "function": {"name": "f"}}]),
]
try:
    client.with_options(timeout=0.3).chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "word " * 200}]
    )
except openai.APITimeoutError:
    found["timeout"] = "raised"

print(json.dumps(found))
