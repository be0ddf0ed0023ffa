#!/usr/bin/env python3
"""Ask a running server for responses (POST /v1/responses) with the clients whose default they are, and check the answers:
openai-python, openai-agents, langchain-openai and litellm.

The server serves a generative model whose chat template supports tools. Without an answer of the kind that is expected
the script ends with 1.

  lorafuse serve --model DIR --listen 127.0.0.1:8000
  pip install openai openai-agents langchain-openai litellm && python scripts/check_responses.py --url http://127.0.0.1:8000
"""
import argparse
import asyncio
import json
import os
import re
import sys
import typing

import openai
import pydantic

checks = []


def check(f):
    checks.append(f)
    return f


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=0, le=150)


WEATHER = {
    "type": "function",
    "name": "weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@check
def openai_python(a):
    c = openai.OpenAI(base_url=a.url, api_key=a.key, max_retries=0)
    first = c.responses.create(model=a.model, input="Hi", instructions="Be kind.", max_output_tokens=8, temperature=0)
    assert first.status in ("completed", "incomplete") and first.usage.output_tokens <= 8, first
    chat = c.chat.completions.create(
        model=a.model, messages=[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}], max_tokens=8, temperature=0
    )
    assert first.output_text == chat.choices[0].message.content, (first, chat)
    again = c.responses.create(model=a.model, input="So?", previous_response_id=first.id, max_output_tokens=8)
    assert again.usage.input_tokens > 0 and again.previous_response_id == first.id, again
    items = list(c.responses.input_items.list(again.id, limit=1, order="asc"))
    assert [x.role for x in items] == ["user", "assistant", "user"], items
    assert c.responses.retrieve(first.id).output_text == first.output_text
    text, kinds = "", []
    with c.responses.stream(model=a.model, input="Hi", text_format=Person, temperature=1.5, top_p=0.9) as stream:
        for e in stream:
            assert e.sequence_number == len(kinds), e
            kinds.append(e.type)
            text += e.delta if e.type == "response.output_text.delta" else ""
        final = stream.get_final_response()
    assert text == final.output_text and isinstance(final.output_parsed, Person), (text, final)
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed", kinds
    parsed = c.responses.parse(model=a.model, input="Hi", text_format=Person, temperature=1.5, top_p=0.9)
    assert isinstance(parsed.output_parsed, Person), parsed
    called = c.responses.create(model=a.model, input="Hi", tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, temperature=1)
    call = called.output[0]
    assert call.type == "function_call" and list(json.loads(call.arguments)) == ["city"], called
    answer = c.responses.create(
        model=a.model, previous_response_id=called.id, input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}],
        tools=[WEATHER], tool_choice="none", max_output_tokens=8,
    )
    assert answer.output[0].type == "message", answer
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}
    both = [WEATHER, {**WEATHER, "name": "news"}]
    called = c.responses.create(model=a.model, input="Hi", tools=both, tool_choice=allowed, parallel_tool_calls=False, temperature=1)
    assert called.output[0].name == "weather", called
    c.responses.delete(first.id)
    try:
        c.responses.retrieve(first.id)
    except openai.NotFoundError as e:
        return e.body["message"]
    raise AssertionError("a deleted response is no error")


@check
def openai_agents(a):
    import agents

    agents.set_default_openai_client(openai.AsyncOpenAI(base_url=a.url, api_key=a.key, max_retries=0), use_for_tracing=False)
    agents.set_tracing_disabled(True)
    asked = []

    @agents.function_tool
    def weather(city: typing.Annotated[str, pydantic.Field(max_length=8)]) -> str:
        """The weather of a city."""
        asked.append(city)
        return "sunny"

    # Agents fail if an answer is cut, and a small model does not end by itself.
    settings = agents.ModelSettings(temperature=1.0, extra_body={"structured_outputs": {"regex": "[a-z]{3,9}"}})
    forced = agents.ModelSettings(temperature=1.0, tool_choice="required", parallel_tool_calls=False)
    wild = agents.ModelSettings(temperature=1.5, top_p=0.9)

    async def run():
        plain = await agents.Runner.run(agents.Agent(name="A", instructions="Be kind.", model=a.model, model_settings=settings), "Hi")
        assert re.fullmatch("[a-z]{3,9}", plain.final_output) and plain.last_response_id.startswith("resp_"), plain
        try:  # each turn has a call, since the choice is never reset
            agent = agents.Agent(name="A", model=a.model, tools=[weather], model_settings=forced, reset_tool_choice=False)
            await agents.Runner.run(agent, "Hi", max_turns=3)
        except agents.MaxTurnsExceeded:
            pass
        assert len(asked) == 3, asked
        typed = await agents.Runner.run(agents.Agent(name="A", model=a.model, output_type=Person, model_settings=wild), "Hi")
        assert isinstance(typed.final_output, Person), typed
        streamed = agents.Runner.run_streamed(agents.Agent(name="A", model=a.model, model_settings=settings), "Hi")
        kinds = [e.type async for e in streamed.stream_events()]
        assert "raw_response_event" in kinds and re.fullmatch("[a-z]{3,9}", streamed.final_output), kinds
        return f"{len(asked)} calls, {typed.final_output}"

    return asyncio.run(run())


@check
def langchain(a):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    m = ChatOpenAI(model=a.model, base_url=a.url, api_key=a.key, use_responses_api=True, max_tokens=64, temperature=1, max_retries=0)
    r = m.invoke("Hi")
    assert r.response_metadata["id"].startswith("resp_") and r.usage_metadata["output_tokens"] <= 64, r
    text = "".join(str(x.text) for x in m.stream("Hi"))
    assert isinstance(text, str)
    bound = m.bind_tools([{"type": "function", "function": {k: v for k, v in WEATHER.items() if k != "type"}}], tool_choice="weather", strict=True)
    call = bound.invoke("Hi")
    assert call.tool_calls[0]["name"] == "weather", call
    m.invoke([HumanMessage("Hi"), call, ToolMessage("sunny", tool_call_id=call.tool_calls[0]["id"])])
    person = m.with_structured_output(Person, method="json_schema").invoke("Hi")
    assert isinstance(person, Person), person
    return str(person)


@check
def litellm(a):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks no other host
    import litellm

    litellm.telemetry = False
    to = {"model": "openai/" + a.model, "api_base": a.url, "api_key": a.key}
    r = litellm.responses(input="Hi", max_output_tokens=8, temperature=0, **to)
    assert r.status in ("completed", "incomplete") and r.output[0].type == "message", r
    kinds = [e.type for e in litellm.responses(input="Hi", max_output_tokens=8, stream=True, **to)]
    assert "response.output_text.delta" in [str(getattr(k, "value", k)) for k in kinds], kinds
    called = litellm.responses(input="Hi", tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, **to)
    assert called.output[0].type == "function_call", called
    return r.output[0].content[0].text[:40]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--url", default="http://127.0.0.1:8000")
    p.add_argument("--key", default="none")
    a = p.parse_args()
    a.url = a.url.rstrip("/").removesuffix("/v1") + "/v1"
    a.model = openai.OpenAI(base_url=a.url, api_key=a.key).models.list().data[0].id
    failed = 0
    for f in checks:
        try:
            print(f"ok    {f.__name__}: {f(a)}", flush=True)
        except Exception as e:  # of any of the clients
            failed += 1
            print(f"FAIL  {f.__name__}: {type(e).__name__}: {e}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
