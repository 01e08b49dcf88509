"""The `openai` package, asynchronous: many at once, and streams that are left early."""

import asyncio
import json
import sys

import openai

MODEL = "scripted"


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def main() -> None:
    found = {}
    async with openai.AsyncOpenAI(
        base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0
    ) as client:
        create = client.chat.completions.create

        async def streamed(text: str) -> str:
            stream = await create(model=MODEL, messages=ask(text), stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        many = [f"question {index}" for index in range(16)]
        found["many"] = await asyncio.gather(*map(streamed, many))

        async with client.chat.completions.stream(model=MODEL, messages=ask("hello")) as stream:
            found["helper"] = [
                "".join([event.delta async for event in stream if event.type == "content.delta"]),
                (await stream.get_final_completion()).choices[0].finish_reason,
            ]
        async with client.responses.stream(model=MODEL, input="hello") as stream:
            await stream.until_done()
            found["response"] = (await stream.get_final_response()).output_text
        found["models"] = [model.id async for model in client.models.list()]

        # Nobody waits for the rest of these.
        for index in range(3):
            stream = await create(model=MODEL, messages=ask("word " * 500), stream=True)
            async with stream:
                async for chunk in stream:
                    if chunk.choices[0].delta.content:
                        break
            events = await client.responses.create(model=MODEL, input="word " * 500, stream=True)
            async with events:
                async for event in events:
                    if event.type == "response.output_text.delta":
                        break
            whole = asyncio.create_task(create(model=MODEL, messages=ask("word " * 500)))
            await asyncio.wait([whole], timeout=1.0)
            whole.cancel()
            await asyncio.gather(whole, return_exceptions=True)
            found["left"] = index + 1
    print(json.dumps(found))


asyncio.run(main())
