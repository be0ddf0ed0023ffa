// Checks a server with OpenAI's own client for JavaScript: values, not only that it answers.
//
//     mkdir -p output/openai && cd output/openai && npm install openai@7.57.0
//     node ../../scripts/check_openai.mjs --url http://127.0.0.1:8000 [--key KEY] [--adapter NAME] [--embeddings] [--tuning]
//
// The client is looked for from the folder that it is started in. Any chat model will do: what is
// checked holds whatever a model writes. --adapter also checks a loaded adapter, --embeddings checks only embeddings,
// and --tuning also checks files and fine-tuning. The exit status is that of the faults.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const { values: args } = parseArgs({
  options: { url: { type: "string" }, key: { type: "string" }, model: { type: "string" }, adapter: { type: "string" }, embeddings: { type: "boolean" }, tuning: { type: "boolean" }, only: { type: "string" } },
});
if (!args.url) {
  console.error("usage: check_openai.mjs --url URL [--key KEY] [--model NAME] [--adapter NAME] [--embeddings] [--tuning] [--only WORD]");
  process.exit(2);
}
const OpenAI = createRequire(process.cwd() + "/")("openai");
const url = args.url.replace(/\/$/, "");
const client = new OpenAI({ baseURL: url + "/v1", apiKey: args.key ?? "none", maxRetries: 0, timeout: 120_000 });
const model = args.model ?? (await client.models.list()).data[0].id;

let passed = 0, failed = 0;
async function check(name, body) {
  if (args.only && !name.includes(args.only)) return;
  try {
    await body();
    passed++;
    console.log("ok     " + name);
  } catch (e) {
    failed++;
    console.log("FAULT  " + name + ": " + String(e?.message ?? e).split("\n").slice(0, 12).join("\n       "));
  }
}

const messages = [{ role: "user", content: "Say something. Größe 日本 🙂" }];
const greedy = { model, messages, temperature: 0, max_tokens: 12 };
const chat = (more = {}) => client.chat.completions.create({ ...greedy, ...more });
const complete = (more = {}) => client.completions.create({ model, prompt: "func main", temperature: 0, max_tokens: 8, ...more });
const refusal = async (promise, status) => {
  const e = await promise.then(() => null, (e) => e);
  assert.ok(e, "it was answered, expected an error");
  assert.equal(e.status, status, e.message);
  assert.ok(e.error?.message, "no error.message in the body");
  assert.ok(e.error.type, "no error.type in the body");
  return e;
};
async function post(path, body, more = {}) {
  const headers = { "content-type": "application/json", ...(args.key ? { authorization: "Bearer " + args.key } : {}) };
  const r = await fetch(url + path, { method: "POST", headers, body: typeof body === "string" ? body : JSON.stringify(body), ...more });
  return { status: r.status, body: await r.text() };
}

/** events collects a stream of chats, and checks its form. */
async function events(more = {}) {
  const stream = await chat({ stream: true, stream_options: { include_usage: true }, ...more });
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  const last = chunks.pop();
  assert.deepEqual(last.choices, [], "the last chunk has the usage and no choices");
  assert.ok(last.usage, "no usage in the last chunk");
  const answers = {};
  for (const c of chunks) {
    assert.equal(c.object, "chat.completion.chunk");
    assert.equal(c.id, chunks[0].id);
    assert.equal(c.choices.length, 1);
    const { index, delta, finish_reason } = c.choices[0];
    const a = (answers[index] ??= { content: "", calls: [], chunks: 0, logprobs: [] });
    assert.equal(a.finish, undefined, "a chunk follows the finish_reason");
    if (a.chunks++ === 0) assert.equal(delta.role, "assistant", "the first delta has the role");
    a.content += delta.content ?? "";
    a.logprobs.push(...(c.choices[0].logprobs?.content ?? []));
    for (const t of delta.tool_calls ?? []) {
      if (t.id) {
        assert.equal(t.index, a.calls.length, "calls begin in order");
        assert.equal(t.type, "function");
        a.calls.push({ id: t.id, name: t.function.name, arguments: t.function.arguments ?? "" });
      } else {
        a.calls[t.index].arguments += t.function.arguments;
      }
    }
    if (finish_reason) a.finish = finish_reason;
  }
  for (const a of Object.values(answers)) assert.ok(a.finish, "an answer without finish_reason");
  return { answers, usage: last.usage, chunks };
}

async function models() {
  await check("models: list and retrieve", async () => {
    const list = await client.models.list();
    assert.equal(list.object, "list");
    const base = list.data.find((m) => m.id === model);
    assert.equal(base.object, "model");
    assert.equal(typeof base.created, "number");
    assert.deepEqual((await client.models.retrieve(model)).id, model);
    if (args.adapter) assert.equal(list.data.find((m) => m.id === args.adapter)?.parent, model);
  });
  await check("models: an unknown one is 404", async () => {
    assert.ok((await refusal(client.models.retrieve("no-such"), 404)) instanceof OpenAI.NotFoundError);
    assert.match((await refusal(chat({ model: "no-such" }), 404)).error.message, /no-such/);
  });
  if (args.key) {
    await check("keys: a wrong one is 401", async () => {
      const other = new OpenAI({ baseURL: url + "/v1", apiKey: "wrong", maxRetries: 0 });
      assert.ok((await refusal(other.models.list(), 401)) instanceof OpenAI.AuthenticationError);
    });
  }
}

async function chats() {
  await check("chat: form, usage, length", async () => {
    const a = await chat();
    assert.equal(a.object, "chat.completion");
    assert.match(a.id, /^chatcmpl-/);
    assert.equal(a.model, model);
    assert.equal(a.choices.length, 1);
    assert.equal(a.choices[0].message.role, "assistant");
    assert.equal(typeof a.choices[0].message.content, "string");
    const u = a.usage;
    assert.ok(u.prompt_tokens > 0 && u.completion_tokens > 0 && u.completion_tokens <= 12);
    assert.equal(u.total_tokens, u.prompt_tokens + u.completion_tokens);
    assert.equal(a.choices[0].finish_reason, u.completion_tokens < 12 ? "stop" : "length");
    const one = await chat({ max_tokens: undefined, max_completion_tokens: 1 });
    assert.equal(one.usage.completion_tokens, 1);
  });
  await check("chat: greedy twice, and seeds", async () => {
    assert.equal((await chat()).choices[0].message.content, (await chat()).choices[0].message.content);
    const drawn = (seed) => chat({ temperature: 1.5, seed, max_tokens: 16 }).then((a) => a.choices[0].message.content);
    const [a, b, c, d] = [await drawn(7), await drawn(7), await drawn(8), await drawn(9)];
    assert.equal(a, b);
    assert.ok(a !== c || a !== d, "three seeds give one text");
  });
  await check("chat: a stream is the same answer", async () => {
    const whole = await chat();
    const { answers, usage } = await events();
    assert.equal(answers[0].content, whole.choices[0].message.content);
    assert.equal(answers[0].finish, whole.choices[0].finish_reason);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
    assert.equal(usage.prompt_tokens, whole.usage.prompt_tokens);
    const bare = await chat({ stream: true });
    for await (const chunk of bare) assert.ok(!chunk.usage, "usage without include_usage");
  });
  await check("chat: the client's own stream", async () => {
    const final = await client.chat.completions.stream({ ...greedy }).finalChatCompletion();
    assert.equal(final.choices[0].message.content, (await chat()).choices[0].message.content);
  });
  await check("chat: n answers, whole and streamed", async () => {
    const a = await chat({ n: 3, temperature: 1.2, seed: 5 });
    assert.deepEqual(a.choices.map((c) => c.index), [0, 1, 2]);
    const { answers } = await events({ n: 3, temperature: 1.2, seed: 5 });
    assert.deepEqual([0, 1, 2].map((i) => answers[i].content), a.choices.map((c) => c.message.content));
    assert.ok(new Set(a.choices.map((c) => c.message.content)).size > 1, "three answers are one");
  });
  await check("chat: logprobs", async () => {
    const a = await chat({ logprobs: true, top_logprobs: 3 });
    const list = a.choices[0].logprobs.content;
    assert.ok(list.length >= a.usage.completion_tokens - 1);
    for (const t of list) {
      assert.ok(t.logprob <= 1e-6 && t.logprob > -50, `logprob ${t.logprob}`);
      assert.equal(t.top_logprobs.length, 3);
      assert.equal(t.top_logprobs[0].token, t.token, "the greedy token is not the likeliest");
      assert.ok(Math.abs(t.top_logprobs[0].logprob - t.logprob) < 1e-6);
      assert.ok(t.top_logprobs[1].logprob <= t.top_logprobs[0].logprob);
    }
    const bytes = Buffer.from(list.flatMap((t) => t.bytes ?? []));
    assert.ok(bytes.toString("utf8").startsWith(a.choices[0].message.content.replace(/\uFFFD.*$/s, "")), "the bytes are not those of the text");
    const streamed = (await events({ logprobs: true, top_logprobs: 3 })).answers[0].logprobs;
    assert.deepEqual(streamed.map((t) => t.token), list.map((t) => t.token));
    assert.equal((await chat()).choices[0].logprobs ?? null, null);
    await refusal(chat({ top_logprobs: 3 }), 400);
  });
  await check("chat: stop strings", async () => {
    const text = (await chat()).choices[0].message.content;
    const characters = [...text];
    const stop = characters.slice(3, 6).join("");
    assert.ok(stop.length > 0, `the answer ${JSON.stringify(text)} is too short`);
    for (const s of [stop, ["never in there", stop]]) {
      const cut = await chat({ stop: s });
      assert.equal(cut.choices[0].message.content, text.slice(0, text.indexOf(stop)));
      assert.equal(cut.choices[0].finish_reason, "stop");
      assert.equal((await events({ stop: s })).answers[0].content, cut.choices[0].message.content);
    }
    const shown = await chat({ stop, include_stop_str_in_output: true });
    assert.equal(shown.choices[0].message.content, text.slice(0, text.indexOf(stop) + stop.length));
  });
  await check("chat: penalties and bias change the choice", async () => {
    const ids = JSON.parse((await post("/tokenize", { model, prompt: "a", add_special_tokens: false })).body).tokens;
    const a = await chat({ logit_bias: { [ids[0]]: 100 }, max_tokens: 4 });
    assert.equal(a.choices[0].message.content, "aaaa");
    const all = await chat({ max_tokens: 16, logit_bias: { [ids[0]]: 100 }, frequency_penalty: 2, logprobs: true });
    assert.equal(all.choices[0].logprobs.content.length, 16);
    await refusal(chat({ logit_bias: { 0: 101 } }), 400);
  });
  await check("chat: contents in parts, names, system", async () => {
    const parts = [{ role: "user", content: [{ type: "text", text: "Say " }, { type: "text", text: "it." }] }];
    assert.ok((await chat({ messages: parts })).choices[0]);
    await chat({ messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "a" }, { role: "assistant", content: "b" }, { role: "user", content: "c" }] });
  });
  await check("chat: what is wrong is named", async () => {
    for (const [more, param] of [[{ temperature: -1 }, "temperature"], [{ messages: [] }, "messages"], [{ max_tokens: 0 }, "max_tokens"], [{ n: 0 }, "n"], [{ top_p: 2 }, "top_p"], [{ stop: 7 }, "stop"]]) {
      const e = await refusal(chat(more), 400);
      assert.ok(e instanceof OpenAI.BadRequestError);
      assert.ok(String(e.error.param).startsWith(param), `param ${e.error.param} for ${JSON.stringify(more)}`);
    }
    await refusal(chat({ messages: [{ role: "user", content: "long ".repeat(200_000) }] }), 400);
  });
  await check("chat: a client that goes leaves no trace", async () => {
    for (let i = 0; i < 5; i++) {
      const stream = await chat({ stream: true, max_tokens: 64, ignore_eos: true });
      for await (const _ of stream) break; // aborts the request
    }
    assert.ok((await chat()).choices[0].message.content !== null);
  });
}

const person = {
  type: "object",
  properties: { name: { type: "string", maxLength: 8 }, age: { type: "integer", minimum: 0, maximum: 99 }, kind: { enum: ["a", "b"] }, next: { anyOf: [{ type: "null" }, { type: "boolean" }] } },
  required: ["name", "age", "kind", "next"], additionalProperties: false,
};
function isPerson(v) {
  assert.deepEqual(Object.keys(v), ["name", "age", "kind", "next"]);
  assert.ok(typeof v.name === "string" && [...v.name].length <= 8);
  assert.ok(Number.isInteger(v.age) && v.age >= 0 && v.age <= 99);
  assert.ok(["a", "b"].includes(v.kind));
  assert.ok(v.next === null || typeof v.next === "boolean");
}

async function shapes() {
  const schema = { type: "json_schema", json_schema: { name: "person", strict: true, schema: person } };
  await check("json_schema: greedy, drawn, streamed, parsed", async () => {
    for (const more of [{}, { temperature: 1.5, seed: 1 }, { temperature: 1.5, seed: 2 }]) {
      const a = await chat({ response_format: schema, max_tokens: 120, ...more });
      assert.equal(a.choices[0].finish_reason, "stop");
      isPerson(JSON.parse(a.choices[0].message.content));
    }
    const whole = await chat({ response_format: schema, max_tokens: 120 });
    assert.equal((await events({ response_format: schema, max_tokens: 120 })).answers[0].content, whole.choices[0].message.content);
    const parsed = await client.chat.completions.parse({ ...greedy, response_format: schema, max_tokens: 120 });
    isPerson(JSON.parse(parsed.choices[0].message.content));
  });
  await check("json_object", async () => {
    const a = await chat({ response_format: { type: "json_object" }, max_tokens: 30, temperature: 1, seed: 3 });
    assert.ok(a.choices[0].message.content.startsWith("{"));
    if (a.choices[0].finish_reason === "stop") assert.equal(typeof JSON.parse(a.choices[0].message.content), "object");
  });
  await check("json_schema: what is wrong is named", async () => {
    const bad = { type: "json_schema", json_schema: { name: "x", schema: { type: "object", minimun: 1 } } };
    const e = await refusal(chat({ response_format: bad }), 400);
    assert.match(e.error.param ?? "", /^response_format/);
    assert.match(e.error.message, /minimun/);
  });
}

const tool = (name, parameters, strict) => ({ type: "function", function: { name, description: "About " + name + ".", parameters, ...(strict ? { strict } : {}) } });
const tools = [tool("look_up", person, true), tool("stop", { type: "object", properties: {}, additionalProperties: false })]; // neither can go on for ever

function isCall(call) {
  assert.match(call.id, /^(call_)?[0-9A-Za-z]{9,}$/);
  const v = JSON.parse(call.arguments);
  if (call.name === "look_up") isPerson(v);
  else assert.equal(call.name, "stop");
}
const flat = (calls) => calls.map((c) => ({ id: c.id, name: c.function.name, arguments: c.function.arguments }));

async function calls() {
  const required = { tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 200 };
  await check("tools: required", async () => {
    for (const more of [{}, { temperature: 1.3, seed: 4 }, { temperature: 1.3, seed: 6 }]) {
      const a = await chat({ ...required, ...more });
      const m = a.choices[0].message;
      assert.equal(a.choices[0].finish_reason, "tool_calls");
      assert.ok(!m.content, `content ${JSON.stringify(m.content)} beside forced calls`);
      assert.equal(m.tool_calls.length, 1);
      assert.equal(m.tool_calls[0].type, "function");
      flat(m.tool_calls).forEach(isCall);
    }
  });
  await check("tools: required, streamed", async () => {
    const whole = await chat(required);
    const { answers } = await events(required);
    assert.equal(answers[0].finish, "tool_calls");
    assert.equal(answers[0].content, "");
    answers[0].calls.forEach(isCall);
    const bare = (calls) => calls.map(({ name, arguments: a }) => [name, a]);
    assert.deepEqual(bare(answers[0].calls), bare(flat(whole.choices[0].message.tool_calls)));
    const final = await client.chat.completions.stream({ ...greedy, ...required }).finalChatCompletion();
    assert.deepEqual(bare(flat(final.choices[0].message.tool_calls)), bare(answers[0].calls));
  });
  await check("tools: a named function", async () => {
    const choice = { type: "function", function: { name: "look_up" } };
    const a = await chat({ ...required, tool_choice: choice, parallel_tool_calls: true });
    assert.equal(a.choices[0].message.tool_calls.length, 1);
    assert.equal(a.choices[0].message.tool_calls[0].function.name, "look_up");
    flat(a.choices[0].message.tool_calls).forEach(isCall);
    assert.ok(["stop", "tool_calls"].includes(a.choices[0].finish_reason));
  });
  const taught = await chat({ tools, max_tokens: 1 }).then(() => true, (e) => !/teaches no calls/.test(e.message));
  if (!taught) console.log("skip   tools of the model's own choice: its chat template teaches no calls");
  if (taught) await check("tools: auto and none", async () => {
    for (const tool_choice of [undefined, "auto", "none"]) {
      const a = await chat({ tools, tool_choice });
      const { answers } = await events({ tools, tool_choice });
      assert.equal(answers[0].content, a.choices[0].message.content ?? "");
      assert.equal(answers[0].calls.length, a.choices[0].message.tool_calls?.length ?? 0);
      if (tool_choice === "none") assert.equal(answers[0].calls.length, 0);
    }
  });
  if (taught) await check("tools: results of calls", async () => {
    const call = { id: "call00001", type: "function", function: { name: "stop", arguments: "{\"a\": [1, \"<\"]}" } };
    const history = [...messages, { role: "assistant", content: null, tool_calls: [call] }, { role: "tool", tool_call_id: "call00001", content: "stopped" }];
    const a = await chat({ messages: history, tools });
    assert.equal(typeof a.choices[0].message.content, "string");
    // A call that max_tokens has cut is sent back as it came.
    const cut = { ...call, function: { name: "stop", arguments: "{\"a\": [1" } };
    const b = await chat({ messages: [...messages, { role: "assistant", content: null, tool_calls: [cut] }, { role: "tool", tool_call_id: call.id, content: "cut" }], tools });
    assert.equal(typeof b.choices[0].message.content, "string");
  });
  await check("tools: what is wrong is named", async () => {
    for (const [more, param] of [
      [{ tools: [tool("a b")] }, "tools[0].function.name"], [{ tools: [tool("a"), tool("a")] }, "tools[1].function.name"], [{ tools: [{ type: "x" }] }, "tools[0].type"],
      [{ tools: [tool("a", { type: "array" })] }, "tools[0].function.parameters"], [{ tools, tool_choice: "must" }, "tool_choice"], [{ tool_choice: "required" }, "tool_choice"],
      [{ tools, tool_choice: { type: "function", function: { name: "look" } } }, "tool_choice"], [{ tools: [tool("a", { type: "object", not: {} }, true)], tool_choice: "required" }, "tools[0].function.parameters"],
    ]) {
      const e = await refusal(chat(more), 400);
      assert.ok(String(e.error.param).startsWith(param), `param ${e.error.param}, expected ${param}`);
    }
  });
}

async function completions() {
  await check("completions: all forms of prompts", async () => {
    const text = (await complete()).choices[0].text;
    const ids = JSON.parse((await post("/tokenize", { model, prompt: "func main" })).body).tokens;
    assert.equal((await complete({ prompt: ids })).choices[0].text, text);
    const two = await complete({ prompt: ["func main", "b"] });
    assert.deepEqual(two.choices.map((c) => c.index), [0, 1]);
    assert.equal(two.choices[0].text, text);
    assert.deepEqual((await complete({ prompt: [ids, ids] })).choices.map((c) => c.text), [text, text]);
    assert.equal((await complete({ prompt: ["func main", "func main"], n: 2 })).choices.length, 4);
    const back = JSON.parse((await post("/detokenize", { model, tokens: JSON.parse((await post("/tokenize", { model, prompt: "日本 ab", add_special_tokens: false })).body).tokens })).body);
    assert.equal(back.prompt.trim(), "日本 ab");
  });
  await check("completions: logprobs, echo", async () => {
    const a = await complete({ logprobs: 2, echo: true });
    const plain = await complete();
    const l = a.choices[0].logprobs;
    assert.ok(a.choices[0].text.endsWith(plain.choices[0].text) && a.choices[0].text.includes("func main"));
    for (const list of [l.token_logprobs, l.top_logprobs, l.text_offset]) assert.equal(list.length, l.tokens.length);
    assert.equal(l.token_logprobs[0], null, "nothing stands before the first token");
    assert.ok(l.token_logprobs.slice(1).every((x) => x <= 1e-6));
    assert.ok(l.text_offset.every((x, i) => i === 0 || x >= l.text_offset[i - 1]));
    const scored = await complete({ logprobs: 0, echo: true, max_tokens: 0 });
    assert.equal(scored.usage.completion_tokens, 0);
    const n = scored.choices[0].logprobs.token_logprobs.length;
    for (let i = 1; i < n; i++) assert.ok(Math.abs(scored.choices[0].logprobs.token_logprobs[i] - l.token_logprobs[i]) < 1e-3);
  });
  await check("completions: a stream is the same answer", async () => {
    const whole = await complete({ n: 2, temperature: 1, seed: 3 });
    const texts = ["", ""];
    let usage;
    for await (const c of await complete({ n: 2, temperature: 1, seed: 3, stream: true, stream_options: { include_usage: true } })) {
      for (const x of c.choices) texts[x.index] += x.text;
      usage = c.usage ?? usage;
    }
    assert.deepEqual(texts, whole.choices.map((c) => c.text));
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  });
  await check("completions: ignore_eos and min_tokens give the length asked for", async () => {
    const a = await complete({ max_tokens: 20, ignore_eos: true, min_tokens: 20 });
    assert.equal(a.usage.completion_tokens, 20);
    assert.equal(a.choices[0].finish_reason, "length");
  });
}

async function transport() {
  await check("http: errors in OpenAI's form", async () => {
    for (const [path, body, status] of [["/v1/chat/completions", "{", 400], ["/v1/chat/completions", "[]", 400], ["/v1/chat/completions", "", 400], ["/v1/nothing", "{}", 404]]) {
      const r = await post(path, body);
      assert.equal(r.status, status, path + " " + body);
      assert.equal(typeof JSON.parse(r.body).error.message, "string");
    }
    assert.equal((await fetch(url + "/v1/chat/completions", { headers: args.key ? { authorization: "Bearer " + args.key } : {} })).status, 405);
    assert.equal((await fetch(url + "/health")).status, 200);
  });
  await check("http: the bytes of a stream", async () => {
    const r = await post("/v1/chat/completions", { ...greedy, stream: true });
    assert.equal(r.status, 200);
    const lines = r.body.split("\n\n");
    assert.equal(lines.pop(), "");
    assert.equal(lines.pop(), "data: [DONE]");
    for (const line of lines) assert.ok(line.startsWith("data: {") || line.startsWith(":"), line.slice(0, 60));
  });
  await check("many at once are each as alone", async () => {
    const names = [model, ...(args.adapter ? [args.adapter] : [])];
    const ask = (i) => chat({ model: names[i % names.length], messages: [{ role: "user", content: "Say " + i }], max_tokens: 10 }).then((a) => a.choices[0].message.content);
    const alone = [];
    for (let i = 0; i < 8; i++) alone.push(await ask(i));
    assert.deepEqual(await Promise.all([...Array(16).keys()].map((i) => ask(i % 8))), [...alone, ...alone]);
  });
}

async function adapters() {
  await check("an adapter is a model of its own", async () => {
    const list = (name) => chat({ model: name, logprobs: true, max_tokens: 6 });
    const [base, other] = [await list(model), await list(args.adapter)];
    assert.equal(other.model, args.adapter);
    const values = (a) => a.choices[0].logprobs.content.map((t) => t.logprob);
    assert.notDeepEqual(values(base), values(other), "its logprobs are the model's");
    assert.deepEqual(values(await list(args.adapter)).map((x) => x.toFixed(4)), values(other).map((x) => x.toFixed(4)));
  });
}

async function tuning() {
  const turns = (i) => [{ role: "user", content: `${i} + ${i} =` }, { role: "assistant", content: String(2 * i) }];
  const lines = (rows) => rows.map((r) => JSON.stringify(r) + "\n").join("");
  const upload = (text) => client.files.create({ file: new File([text], "rows.jsonl"), purpose: "fine-tune" });
  const numbers = [...Array(24).keys()];
  const text = lines(numbers.map((i) => ({ messages: turns(i) })));
  const ended = async (job) => {
    while (job.finished_at === null) {
      await new Promise((done) => setTimeout(done, 100));
      job = await client.fineTuning.jobs.retrieve(job.id);
    }
    return job;
  };
  const all = async (pages) => {
    const out = [];
    for await (const x of await pages) out.push(x);
    return out;
  };
  await check("files are sent, read and deleted", async () => {
    const f = await upload(text);
    assert.equal(f.bytes, text.length);
    assert.equal(await (await client.files.content(f.id)).text(), text);
    assert.ok((await all(client.files.list({ limit: 2 }))).some((x) => x.id === f.id));
    assert.equal((await client.files.delete(f.id)).deleted, true);
    await refusal(client.files.retrieve(f.id), 404);
  });
  await check("a job makes a model", async () => {
    const method = { type: "supervised", supervised: { hyperparameters: { n_epochs: 3, batch_size: 4 } } };
    const job = await ended(await client.fineTuning.jobs.create({ model, training_file: (await upload(text)).id, suffix: "node", seed: 3, method }));
    assert.equal(job.status, "succeeded", JSON.stringify(job.error));
    const events = await all(client.fineTuning.jobs.listEvents(job.id, { limit: 5 }));
    assert.deepEqual(events.filter((e) => e.type === "metrics").map((e) => e.data.step), [...Array(18).keys()].map((i) => 18 - i));
    const points = await all(client.fineTuning.jobs.checkpoints.list(job.id, { limit: 1 }));
    assert.deepEqual(points.map((p) => p.step_number), [18, 12, 6]);
    assert.equal(points[0].fine_tuned_model_checkpoint, job.fine_tuned_model);
    for (const name of points.map((p) => p.fine_tuned_model_checkpoint)) assert.equal((await chat({ model: name })).model, name);
    assert.equal((await client.models.delete(job.fine_tuned_model)).deleted, true);
    await refusal(chat({ model: job.fine_tuned_model }), 404);
  });
  await check("a job learns preferences", async () => {
    const rows = numbers.map((i) => ({ input: { messages: turns(i).slice(0, 1) }, preferred_output: turns(i).slice(1), non_preferred_output: [{ role: "assistant", content: "no" }] }));
    const method = { type: "dpo", dpo: { hyperparameters: { beta: 0.2, n_epochs: 2 } } };
    const job = await ended(await client.fineTuning.jobs.create({ model, training_file: (await upload(lines(rows))).id, method }));
    assert.equal(job.status, "succeeded", JSON.stringify(job.error));
    assert.equal(job.method.dpo.hyperparameters.beta, 0.2);
  });
  await check("a job is cancelled", async () => {
    const job = await client.fineTuning.jobs.create({ model, training_file: (await upload(text)).id, hyperparameters: { n_epochs: 1000 } });
    assert.equal((await client.fineTuning.jobs.cancel(job.id)).status, "cancelled");
    await refusal(client.fineTuning.jobs.cancel(job.id), 400);
    const e = await refusal(client.fineTuning.jobs.create({ model, training_file: "file-none" }), 400);
    assert.equal(e.param, "training_file");
  });
}

async function vectors() {
  await check("embeddings: numbers and base64 are the same", async () => {
    const input = ["one text", "another 日本", "one text"];
    const decoded = (await client.embeddings.create({ model, input })).data; // base64 on the wire
    const numbers = (await client.embeddings.create({ model, input, encoding_format: "float" })).data;
    assert.deepEqual(decoded.map((d) => d.index), [0, 1, 2]);
    for (let i = 0; i < 3; i++) {
      assert.ok(numbers[i].embedding.length > 0);
      assert.deepEqual(decoded[i].embedding, numbers[i].embedding.map(Math.fround));
    }
    assert.deepEqual(numbers[0].embedding, numbers[2].embedding);
    assert.notDeepEqual(numbers[0].embedding, numbers[1].embedding);
    const raw = JSON.parse((await post("/v1/embeddings", { model, input: "one text" })).body);
    assert.ok(Array.isArray(raw.data[0].embedding), "numbers where nothing was said");
    const u = raw.usage;
    assert.ok(u.prompt_tokens > 0 && u.total_tokens === u.prompt_tokens);
  });
  await check("embeddings: dimensions", async () => {
    const whole = (await client.embeddings.create({ model, input: "x", encoding_format: "float" })).data[0].embedding;
    const short = (await client.embeddings.create({ model, input: "x", dimensions: 8, encoding_format: "float" })).data[0].embedding;
    assert.equal(short.length, 8);
    const scale = short[0] / whole[0];
    short.forEach((x, i) => assert.ok(Math.abs(x - whole[i] * scale) < 1e-5));
    await refusal(client.embeddings.create({ model, input: "x", dimensions: whole.length + 1 }), 400);
    await refusal(client.embeddings.create({ model, input: [] }), 400);
  });
}

await models();
if (args.embeddings) {
  await vectors();
} else {
  for (const group of [chats, shapes, calls, completions, transport]) await group();
  if (args.adapter) await adapters();
  if (args.tuning) await tuning();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
