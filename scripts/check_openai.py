#!/usr/bin/env python3
"""Ask a running server what OpenAI's clients ask, with openai-python, and check the answers.

The server may serve any generative model, with or without --adapters-dir. Chats are checked if the model has a chat
template, tools if the template supports them, embeddings if they are served, and files and fine-tuning with
--train-dir.
Without an answer of the kind that is expected the script ends with 1.

  lorafuse serve --model DIR --listen 127.0.0.1:8000
  pip install openai && python scripts/check_openai.py --url http://127.0.0.1:8000
"""
import argparse
import base64
import json
import struct
import sys
import time
import typing
import urllib.request

import openai
import pydantic

checks = []


def check(f):
    checks.append(f)
    return f


class Skip(Exception):
    """Features that the server does not offer."""


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=0, le=150)
    mood: typing.Literal["good", "bad"] | None


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 8}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
HELLO = [{"role": "user", "content": "Hi"}]


def chat(c, model, **more):
    """A chat that may have no template."""
    try:
        return c.chat.completions.create(model=model, messages=HELLO, **more)
    except openai.BadRequestError as e:
        if "chat template" in str(e):
            raise Skip(e.body["message"]) from e
        raise


@check
def models(c, model):
    listed = list(c.models.list())
    assert listed[0].id == model and listed[0].object == "model", listed
    assert listed[0].model_extra["max_model_len"] > 0 and listed[0].model_extra["parent"] is None, listed
    assert c.models.retrieve(model).id == model
    for m in listed[1:]:
        assert m.model_extra["parent"] == model, m
    return f"{len(listed)} models"


@check
def unknown_model(c, model):
    try:
        c.completions.create(model=model + "x", prompt="a")
    except openai.NotFoundError as e:
        assert e.code == "model_not_found" and e.param == "model" and model in e.body["message"], e
        return e.body["message"]
    raise AssertionError("an unknown model is no error")


@check
def chats(c, model):
    r = chat(c, model, max_tokens=8, temperature=0, logprobs=True, top_logprobs=3, n=2, seed=1)
    assert len(r.choices) == 2 and r.choices[0].message.role == "assistant", r
    assert r.choices[0].message.content == r.choices[1].message.content, "two greedy answers"
    tokens = r.choices[0].logprobs.content
    assert r.usage.completion_tokens == sum(len(x.logprobs.content) for x in r.choices), r.usage
    assert all(len(t.top_logprobs) == 3 and t.logprob <= 0 for t in tokens), tokens
    assert all(t.token == t.top_logprobs[0].token for t in tokens), "greedy choices are the likeliest"
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens, r.usage
    return repr(r.choices[0].message.content)


@check
def streamed_chats(c, model):
    whole = chat(c, model, max_tokens=16, temperature=0)
    text, finish, usage, roles = "", None, None, []
    for e in chat(c, model, max_tokens=16, temperature=0, stream=True, stream_options={"include_usage": True}):
        assert e.object == "chat.completion.chunk"
        if e.usage:
            assert e.choices == [], e
            usage = e.usage
            continue
        d = e.choices[0]
        roles += [d.delta.role] if d.delta.role else []
        text += d.delta.content or ""
        finish = d.finish_reason or finish
    assert text == whole.choices[0].message.content, (text, whole)
    assert finish == whole.choices[0].finish_reason and roles == ["assistant"], (finish, roles)
    assert usage.completion_tokens == whole.usage.completion_tokens, usage
    return f"{usage.completion_tokens} tokens"


@check
def parsed(c, model):
    chat(c, model, max_tokens=1)
    seen = []
    for seed in range(5):
        r = c.chat.completions.parse(model=model, messages=HELLO, response_format=Person, seed=seed, temperature=1.5, top_p=0.9)
        assert r.choices[0].finish_reason == "stop", r
        seen.append(r.choices[0].message.parsed)
        assert isinstance(seen[-1], Person), r
    r = chat(c, model, response_format={"type": "json_object"}, temperature=0, max_tokens=40, logit_bias={})
    if r.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(r.choices[0].message.content), dict), r
    return str(seen[0])


@check
def refused(c, model):
    try:
        chat(c, model, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"a": {"not": {}}}}}})
    except openai.BadRequestError as e:
        assert e.param == "response_format.json_schema.schema" and "/properties/a" in e.body["message"], e
    else:
        raise AssertionError("a schema that cannot be kept to is no error")
    try:
        c.completions.create(model=model, prompt="a", temperature=-1)
    except openai.BadRequestError as e:
        assert e.param == "temperature" and e.type == "invalid_request_error", e
        return e.body["message"]
    raise AssertionError("a temperature below 0 is no error")


@check
def completions(c, model):
    r = c.completions.create(model=model, prompt=[5, 6, 7], max_tokens=4, temperature=0, logprobs=2, echo=True)
    x = r.choices[0]
    assert len(x.logprobs.tokens) == 3 + r.usage.completion_tokens == len(x.logprobs.text_offset), x
    assert x.logprobs.token_logprobs[0] is None and all(v <= 0 for v in x.logprobs.token_logprobs[1:]), x
    assert all(len(t) in (2, 3) for t in x.logprobs.top_logprobs[1:]), x
    assert r.usage.prompt_tokens == 3, r.usage
    only = c.completions.create(model=model, prompt=[5, 6, 7], max_tokens=0, logprobs=1, echo=True)
    assert only.choices[0].logprobs.token_logprobs == x.logprobs.token_logprobs[:3], (only, x)
    many = c.completions.create(model=model, prompt=["a", "b", "a"], max_tokens=5, temperature=0)
    assert [y.index for y in many.choices] == [0, 1, 2] and many.choices[0].text == many.choices[2].text, many
    drawn = [c.completions.create(model=model, prompt="a", max_tokens=8, temperature=1, seed=s, n=2) for s in (1, 1, 2)]
    texts = [[y.text for y in d.choices] for d in drawn]
    assert texts[0] == texts[1] != texts[2], texts
    long = c.completions.create(model=model, prompt="a", max_tokens=12, extra_body={"ignore_eos": True, "min_tokens": 12, "top_k": 5})
    assert long.usage.completion_tokens == 12 and long.choices[0].finish_reason == "length", long
    return repr(x.text)


@check
def streamed_completions(c, model):
    whole = c.completions.create(model=model, prompt="a", max_tokens=8, temperature=0, n=2)
    texts = ["", ""]
    for e in c.completions.create(model=model, prompt="a", max_tokens=8, temperature=0, n=2, stream=True):
        texts[e.choices[0].index] += e.choices[0].text
    assert texts == [x.text for x in whole.choices], (texts, whole)
    return repr(texts[0])


@check
def tools(c, model):
    chat(c, model, max_tokens=1)
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        more = dict(tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False, temperature=1, seed=3)
        r = chat(c, model, **more).choices[0]
        assert r.finish_reason == "tool_calls" and len(r.message.tool_calls) == 1, r
        call = r.message.tool_calls[0]
        assert call.type == "function" and call.function.name == "weather" and call.id, call
        assert list(json.loads(call.function.arguments)) == ["city"], call
        with c.chat.completions.stream(model=model, messages=HELLO, **more) as stream:
            last = stream.get_final_completion().choices[0]
        assert last.message.tool_calls[0].function.arguments == call.function.arguments, (last, call)
    again = HELLO + [r.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    c.chat.completions.create(model=model, messages=again, tools=[WEATHER], tool_choice="none", max_tokens=4)
    try:
        c.chat.completions.create(model=model, messages=HELLO, tools=[WEATHER], max_tokens=8)
    except openai.BadRequestError as e:
        assert e.param == "tools", e
        return "forced alone: " + e.body["message"]
    return call.function.arguments


@check
def adapters(c, model):
    names = [m.id for m in c.models.list()][1:]
    if not names:
        raise Skip("no adapter is loaded")
    texts = {n: c.completions.create(model=n, prompt="a", max_tokens=8, temperature=0).choices[0].text for n in names}
    return str(texts)


@check
def embeddings(c, model):
    try:
        r = c.embeddings.create(model=model, input=["a b", "c"])  # the client asks for base64
    except openai.BadRequestError as e:
        raise Skip(e.body["message"]) from e
    f = c.embeddings.create(model=model, input=["a b", "c"], encoding_format="float")
    floats = [struct.pack(f"<{len(d.embedding)}f", *d.embedding) for d in f.data]
    assert floats == [struct.pack(f"<{len(d.embedding)}f", *d.embedding) for d in r.data], "both encodings are the same"
    raw = post(c, "/embeddings", {"model": model, "input": ["a b", "c"], "encoding_format": "base64"})["data"]
    assert floats == [base64.b64decode(d["embedding"]) for d in raw], "the bytes are those of the numbers"
    return f"{len(f.data[0].embedding)} numbers"


def upload(c, rows):
    """A file for fine-tuning."""
    try:
        return c.files.create(file=("rows.jsonl", "".join(json.dumps(r) + "\n" for r in rows).encode()), purpose="fine-tune")
    except openai.NotFoundError as e:
        raise Skip("there is no --train-dir") from e


def conversation(i, answer=True):
    return [{"role": "user", "content": f"{i} + {i} ="}] + ([{"role": "assistant", "content": str(2 * i)}] if answer else [])


def chats_to_learn(n):
    return [{"messages": conversation(i)} for i in range(n)]


def ended(c, job):
    while job.finished_at is None:
        time.sleep(0.1)
        job = c.fine_tuning.jobs.retrieve(job.id)
    return job


@check
def files(c, model):
    f = upload(c, chats_to_learn(3))
    assert f.object == "file" and f.purpose == "fine-tune" and f.filename == "rows.jsonl" and f.status == "processed", f
    assert c.files.retrieve(f.id) == f
    content = c.files.content(f.id).read()
    assert len(content) == f.bytes and json.loads(content.splitlines()[2]) == chats_to_learn(3)[2], content
    g = c.files.create(file=("x.txt", b"x"), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600})
    assert g.expires_at == g.created_at + 3600, g
    assert [x.id for x in c.files.list(limit=1)][:2] == [g.id, f.id], "the latest first, page by page"
    assert f.id not in [x.id for x in c.files.list(purpose="user_data")]
    for x in (f, g):
        assert c.files.delete(x.id).deleted
    try:
        c.files.retrieve(f.id)
        raise AssertionError("a file that is gone is no error")
    except openai.NotFoundError:
        pass
    try:
        c.files.create(file=("x.jsonl", b"x"), purpose="batch")
    except openai.BadRequestError as e:
        assert e.param == "purpose", e
        return e.body["message"]
    raise AssertionError("a purpose that nothing is done with is no error")


@check
def fine_tuning(c, model):
    f, valid = upload(c, chats_to_learn(40)), upload(c, chats_to_learn(4))
    chat(c, model, max_tokens=1)
    job = c.fine_tuning.jobs.create(
        model=model, training_file=f.id, validation_file=valid.id, suffix="check", seed=5, metadata={"by": "check"},
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 4, "batch_size": 4, "learning_rate_multiplier": 5}}},
        extra_body={"lora": {"r": 4}},
    )
    assert job.object == "fine_tuning.job" and job.status == "validating_files" and job.fine_tuned_model is None and job.seed == 5, job
    job = ended(c, job)
    assert job.status == "succeeded" and job.error is None and job.trained_tokens > 0 and job.estimated_finish is None, job
    assert job.fine_tuned_model.startswith("check") and job.hyperparameters.n_epochs == 4 and job.method.supervised.hyperparameters.batch_size == 4, job
    assert job.id in [j.id for j in c.fine_tuning.jobs.list(metadata={"by": "check"})]
    assert job.id not in [j.id for j in c.fine_tuning.jobs.list(metadata={"by": "other"})]
    events = list(c.fine_tuning.jobs.list_events(job.id, limit=7))
    losses = [e.data["train_loss"] for e in events if e.type == "metrics"][::-1]
    assert len(losses) == 40 and losses[-1] < losses[0], losses
    assert [e.data["valid_loss"] for e in events if e.type == "metrics" and "valid_loss" in e.data], events
    points = list(c.fine_tuning.jobs.checkpoints.list(job.id))
    assert [p.step_number for p in points] == [40, 30, 20] and points[0].fine_tuned_model_checkpoint == job.fine_tuned_model, points
    assert points[1].metrics.full_valid_loss > 0 and points[1].fine_tuning_job_id == job.id, points
    for name in [p.fine_tuned_model_checkpoint for p in points]:
        assert c.models.retrieve(name).id == name
        assert c.chat.completions.create(model=name, messages=HELLO, max_tokens=4).model == name
    table = c.files.content(job.result_files[0]).text.splitlines()
    assert table[0].startswith("step,train_loss,") and len(table) == 41, table
    more = c.fine_tuning.jobs.create(model=job.fine_tuned_model, training_file=f.id, suffix="check", hyperparameters={"n_epochs": 1})
    assert ended(c, more).status == "succeeded", more
    assert more.fine_tuned_model != job.fine_tuned_model
    assert c.models.delete(job.fine_tuned_model).deleted
    assert job.fine_tuned_model not in [m.id for m in c.models.list()]
    return f"loss {losses[0]:.3f} to {losses[-1]:.3f}"


@check
def preferences(c, model):
    f = upload(c, [
        {"input": {"messages": conversation(i, answer=False)}, "preferred_output": [{"role": "assistant", "content": str(2 * i)}], "non_preferred_output": [{"role": "assistant", "content": str(3 * i + 1)}]}
        for i in range(16)
    ])
    chat(c, model, max_tokens=1)
    job = ended(c, c.fine_tuning.jobs.create(
        model=model, training_file=f.id, suffix="prefers",
        method={"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.1, "n_epochs": 8, "learning_rate_multiplier": 20}}},
    ))
    assert job.status == "succeeded" and job.method.dpo.hyperparameters.beta == 0.1, job
    losses = [e.data["train_loss"] for e in c.fine_tuning.jobs.list_events(job.id, limit=1000) if e.type == "metrics"][::-1]
    assert losses[-1] < losses[0], losses
    c.chat.completions.create(model=job.fine_tuned_model, messages=HELLO, max_tokens=4)
    return f"loss {losses[0]:.3f} to {losses[-1]:.3f}"


@check
def stopped_jobs(c, model):
    f = upload(c, chats_to_learn(40))
    chat(c, model, max_tokens=1)
    job = c.fine_tuning.jobs.create(model=model, training_file=f.id, hyperparameters={"n_epochs": 1000})
    while c.fine_tuning.jobs.retrieve(job.id).status in ("validating_files", "queued"):
        time.sleep(0.05)
    assert c.fine_tuning.jobs.pause(job.id).status == "paused"
    assert c.fine_tuning.jobs.resume(job.id).status == "queued"
    assert c.fine_tuning.jobs.cancel(job.id).status == "cancelled"
    try:
        c.fine_tuning.jobs.cancel(job.id)
    except openai.BadRequestError:
        pass
    bad = ended(c, c.fine_tuning.jobs.create(model=model, training_file=upload(c, [{"messages": "none"}]).id))
    assert bad.status == "failed" and bad.error.code == "invalid_training_file" and "line 1" in bad.error.message, bad
    try:
        c.fine_tuning.jobs.create(model=model, training_file=f.id, extra_body={"lora": {"r": 0}})
    except openai.BadRequestError as e:
        assert e.param == "lora.r", e
        return bad.error.message
    raise AssertionError("a rank of 0 is no error")


def begin(c, model):
    """A job that continues after the server is killed and restarted."""
    job = c.fine_tuning.jobs.create(model=model, training_file=upload(c, chats_to_learn(40)).id, suffix="survivor", hyperparameters={"n_epochs": 100, "batch_size": 1})
    while not any(e.type == "metrics" for e in c.fine_tuning.jobs.list_events(job.id, limit=100).data):
        time.sleep(0.05)
    return job.id


def end(c, job):
    """Checks a job of begin to its end."""
    job = ended(c, c.fine_tuning.jobs.retrieve(job))
    assert job.status == "succeeded" and job.fine_tuned_model == "survivor", job
    events = list(c.fine_tuning.jobs.list_events(job.id, limit=1000))
    steps = [e.data["step"] for e in events if e.type == "metrics"][::-1]
    assert steps == sorted(set(steps)) and steps[-1] == 4000, "a step twice, or not to the end"
    assert any("started again" in e.message for e in events), "the server was not killed"
    c.chat.completions.create(model="survivor", messages=HELLO, max_tokens=4)


def post(c, path, body):
    """A request without the client."""
    r = urllib.request.Request(
        str(c.base_url).rstrip("/") + path,
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + c.api_key},
    )
    with urllib.request.urlopen(r) as answer:
        return json.load(answer)


def recorded(r):
    """A request and the status of its answer, for tests that send it again."""
    headers = {k: r.request.headers[k] for k in ("content-type", "accept", "user-agent") if k in r.request.headers}
    body = json.loads(r.request.content) if r.request.content and headers.get("content-type") == "application/json" else None
    return {"method": r.request.method, "path": r.request.url.path, "headers": headers, "body": body, "status": r.status_code}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--url", default="http://127.0.0.1:8000")
    p.add_argument("--key", default="none")
    p.add_argument("--model", help="its name; default the first that is served")
    p.add_argument("--record", help="file for the requests that are sent and the status of their answers, as JSON lines")
    p.add_argument("--begin", action="store_true", help="only begin a fine-tuning job, and print its id")
    p.add_argument("--end", metavar="ID", help="only check that job to its end, after the server was killed and started again")
    a = p.parse_args()
    hooks = {}
    if a.record:
        lines = open(a.record, "w", encoding="utf-8")
        hooks = {"response": [lambda r: print(json.dumps(recorded(r), ensure_ascii=False), file=lines, flush=True)]}
    c = openai.OpenAI(base_url=a.url.rstrip("/").removesuffix("/v1") + "/v1", api_key=a.key, max_retries=0, http_client=openai.DefaultHttpxClient(event_hooks=hooks))
    model = a.model or c.models.list().data[0].id
    if a.begin:
        return print(begin(c, model))
    if a.end:
        return end(c, a.end)
    text = True
    try:
        c.completions.create(model=model, prompt="a", max_tokens=1)
    except openai.BadRequestError:
        text = False  # it computes embeddings
    failed = 0
    for f in checks:
        if not text and f not in (models, unknown_model, embeddings):
            continue
        try:
            print(f"ok    {f.__name__}: {f(c, model)}")
        except Skip as e:
            print(f"none  {f.__name__}: {e}")
        except (AssertionError, openai.OpenAIError) as e:
            failed += 1
            print(f"FAIL  {f.__name__}: {type(e).__name__}: {e}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
