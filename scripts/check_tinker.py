#!/usr/bin/env python3
"""Has Tinker's own client and cookbook train on a running `lorafuse serve --train-dir DIR`.

    check_tinker.py --url http://127.0.0.1:8000 --key tml-sesame [--cookbook] [--proxy] [--fields FILE]
    check_tinker.py --url http://127.0.0.1:8000 --key tml-sesame --gap

It trains supervised and sees the loss fall, saves, loads, continues, samples, lists, downloads
and deletes. With --cookbook the supervised and the RL loop of tinker-cookbook run unmodified.
Two clients at once must get the adapters that each gets alone, and a proxy that drops each
answer once must change nothing. --fields compares the numbers of protobuf fields with the
client's. --gap compares the log-probabilities of sampled tokens with the results of
compute_logprobs and forward_backward, on a server with --batch-invariant: the largest
difference must be 0.

It needs tinker, and for --cookbook tinker-cookbook. The exit status is 1 if a check fails.
"""

import argparse
import asyncio
import hashlib
import http.client
import http.server
import json
import math
import os
import sys
import tempfile
import threading
import urllib.request
import warnings

args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
args.add_argument("--url", required=True)
args.add_argument("--key", default="tml-none")
args.add_argument("--cookbook", action="store_true")
args.add_argument("--proxy", action="store_true", help="also through a proxy that drops each answer once")
args.add_argument("--fields", help="file with the numbers of fields, internal/serve/tinker/testdata/tinker_public.json")
args.add_argument("--write-fields", action="store_true", help="write that file")
args.add_argument("--gap", action="store_true", help="only compare log-probabilities of sampling, scoring and training")
args.add_argument("--begin", action="store_true", help="train a little and save, and print what --end needs")
args.add_argument("--end", help="what --begin has printed, of a server that was killed since")
args = args.parse_args()

os.environ.update(TINKER_BASE_URL=args.url, TINKER_API_KEY=args.key, TINKER_TELEMETRY="0", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

warnings.filterwarnings("ignore")  # deprecations of later client versions

import tinker  # noqa: E402
from tinker import types  # noqa: E402

failures = 0


def check(what, ok, found=""):
    global failures
    print(f"{'ok  ' if ok else 'FAIL'} {what}{'' if ok else f': {found}'}", flush=True)
    failures += not ok


def raises(what, kind, call, *texts):
    try:
        call()
        check(what, False, "no error")
    except kind as e:
        check(what, all(t in str(e) for t in texts), repr(e))


TEXTS = [
    "The cat sat on the mat.", "A dog ran in the park.", "Rain falls on the roof.", "She reads a book.",
    "He makes bread at home.", "We walk to the river.", "They sing every night.", "Birds fly over the sea.",
]


def datum(tokenizer, text):
    ids = tokenizer.encode(text)
    return types.Datum(
        model_input=types.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={"target_tokens": ids[1:], "weights": [1.0] * (len(ids) - 1)},
    )


def base_model():
    service = tinker.ServiceClient()
    found = service.get_server_capabilities().supported_models
    return service, found[0].model_name


def train(url, seed, steps=6, rank=8, rate=1e-2, texts=TEXTS, name="end"):
    """Trains, and gives the losses and the digest of the adapter."""
    service = tinker.ServiceClient(base_url=url)
    model = service.get_server_capabilities().supported_models[0].model_name
    client = service.create_lora_training_client(base_model=model, rank=rank, seed=seed).result()
    tokenizer = client.get_tokenizer()
    data = [datum(tokenizer, t) for t in texts]
    losses = []
    for _ in range(steps):
        forward = client.forward_backward(data, "cross_entropy")
        step = client.optim_step(types.AdamParams(learning_rate=rate))
        losses.append(forward.result().metrics["loss:sum"])
        step.result()
    path = client.save_weights_external(name).result().path
    digest = hashlib.sha256(fetch(service, path)["adapter_model.safetensors"]).hexdigest()
    service.create_rest_client().delete_checkpoint_from_tinker_path(path).result()
    service.close("success").result()
    return losses, digest


def fetch(service, path):
    urls = service.create_rest_client().get_external_weights_urls(path).result().urls
    return {name: urllib.request.urlopen(url).read() for name, url in urls.items()}


def check_client():
    service, model = base_model()
    client = service.create_lora_training_client(base_model=model, rank=8, seed=1).result()
    info = client.get_info()
    check("get_info names the model", info.model_data.model_name == model and info.lora_rank == 8, info)
    tokenizer = client.get_tokenizer()
    data = [datum(tokenizer, t) for t in TEXTS]
    adam = types.AdamParams(learning_rate=1e-2)
    prompt = types.ModelInput.from_ints(tokenizer.encode("The cat"))
    greedy = types.SamplingParams(max_tokens=8, temperature=0.0, stop=[])

    fresh = client.save_weights_and_get_sampling_client().result()
    base = service.create_sampling_client(base_model=model).result()
    before = [s.sample(prompt, 1, greedy).result().sequences[0].tokens for s in (fresh, base)]
    check("an untrained adapter samples what the model does", before[0] == before[1], before)

    losses, logprobs = [], None
    for _ in range(8):
        forward, step = client.forward_backward(data, "cross_entropy"), client.optim_step(adam)
        out = forward.result()
        losses.append(out.metrics["loss:sum"])
        logprobs = out.loss_fn_outputs
        step.result()
    check("the loss falls", losses[-1] < 0.9 * losses[0], losses)
    total = -sum(sum(d["logprobs"].tolist()) for d in logprobs)
    check("the loss is the sum of the log-probabilities", math.isclose(total, losses[-1], rel_tol=1e-5), (total, losses[-1]))

    saved = client.save_state("middle").result().path
    sampler = client.save_weights_and_get_sampling_client().result()
    alone = client.forward(data, "cross_entropy").result().metrics["loss:sum"]
    scored = 0.0
    for d in data:
        ids = d.model_input.to_ints() + [d.loss_fn_inputs["target_tokens"].tolist()[-1]]
        found = sampler.compute_logprobs(types.ModelInput.from_ints(ids)).result()
        check("nothing is known of the first token", found[0] is None, found[0]) if d is data[0] else None
        scored -= sum(found[1:])
    check("sampling has the weights of training", math.isclose(scored, alone, rel_tol=1e-4), (scored, alone))

    # It continues from the checkpoint as if nothing had happened.
    rest = []
    for c in (client, service.create_training_client_from_state_with_optimizer(saved).result()):
        for _ in range(2):
            forward, step = c.forward_backward(data, "cross_entropy"), c.optim_step(adam)
            forward.result(), step.result()
        path = c.save_weights_external("after").result().path
        rest.append(hashlib.sha256(fetch(service, path)["adapter_model.safetensors"]).hexdigest())
    check("a state that is loaded goes on to the same bits", rest[0] == rest[1], rest)
    client.load_state(saved).result()
    check("load_state goes back", math.isclose(client.forward(data, "cross_entropy").result().metrics["loss:sum"], alone, rel_tol=1e-6))

    r = sampler.sample(prompt, 3, types.SamplingParams(max_tokens=6, seed=7), include_prompt_logprobs=True, topk_prompt_logprobs=2).result()
    again = sampler.sample(prompt, 3, types.SamplingParams(max_tokens=6, seed=7)).result()
    check("a seed gives the same answers", [s.tokens for s in r.sequences] == [s.tokens for s in again.sequences])
    check("answers have log-probabilities", all(len(s.tokens) == len(s.logprobs) for s in r.sequences))
    check("answers to one request differ", len({tuple(s.tokens) for s in r.sequences}) > 1, r.sequences)
    check("prompts have log-probabilities", r.prompt_logprobs[0] is None and all(x < 0 for x in r.prompt_logprobs[1:]), r.prompt_logprobs)
    check("and the most likely tokens", r.topk_prompt_logprobs[0] is None and all(len(x) == 2 for x in r.topk_prompt_logprobs[1:]), r.topk_prompt_logprobs)
    plain = sampler.sample(prompt, 1, greedy).result().sequences[0]
    check("no stop at all runs to the end", plain.stop_reason == "length" and len(plain.tokens) == 8, plain)
    one = sampler.sample(prompt, 1, types.SamplingParams(max_tokens=8, temperature=0.0, stop=[plain.tokens[2]])).result().sequences[0]
    check("a stop token ends an answer and is its last", one.stop_reason == "stop" and one.tokens == plain.tokens[: len(one.tokens)] and one.tokens[-1] == plain.tokens[2], one)
    text = tokenizer.decode(plain.tokens[:3])
    one = sampler.sample(prompt, 1, types.SamplingParams(max_tokens=8, temperature=0.0, stop=[text])).result().sequences[0]
    check("a stop text ends an answer", one.stop_reason == "stop" and len(one.tokens) <= 3, (one, text))

    named = client.save_weights_for_sampler("named").result().path
    other = service.create_sampling_client(model_path=named).result()
    check("saved weights sample as live ones", other.sample(prompt, 1, greedy).result().sequences[0].tokens == plain.tokens)
    rest_client = service.create_rest_client()
    listed = {c.tinker_path: c for c in rest_client.list_user_checkpoints().result().checkpoints}
    check("checkpoints are listed", {saved, named} <= set(listed), listed.keys())
    check("with their sizes", listed[saved].size_bytes > listed[named].size_bytes > 0, listed)
    run = rest_client.get_training_run_by_tinker_path(saved).result()
    check("a run is found by its path", run.lora_rank == 8 and run.base_model == model and run.last_checkpoint.tinker_path == saved, run)
    rest_client.set_checkpoint_ttl_from_tinker_path(named, 3600).result()
    found = rest_client.list_checkpoints(run.training_run_id).result().checkpoints
    check("a time to live can be set", any(c.tinker_path == named and c.expires_at for c in found), found)
    rest_client.delete_checkpoint_from_tinker_path(named).result()
    raises("what is deleted is gone", tinker.APIStatusError, lambda: rest_client.get_weights_info_by_tinker_path(named).result(), "404")

    raises("an unknown model is refused by name", Exception, lambda: service.create_lora_training_client(base_model=model + "x", rank=8).result(), "did you mean", model)
    raises("a loss that is not there is refused by name", tinker.RequestFailedError, lambda: client.forward_backward(data, "gspo").result(), "gspo")
    raises("a rank that makes no sense is refused", Exception, lambda: service.create_lora_training_client(base_model=model, rank=0).result(), "rank")
    service.close("success").result()


def check_losses():
    """A policy that is rewarded for a token comes to say it, by each of the losses for that."""
    for loss, config in (("importance_sampling", None), ("ppo", None), ("cispo", None), ("dro", {"beta": 0.05})):
        service, model = base_model()
        client = service.create_lora_training_client(base_model=model, rank=8, seed=3).result()
        want = 70
        rates = []
        for _ in range(4):
            sampler = client.save_weights_and_get_sampling_client().result()
            p = sampler.compute_logprobs(types.ModelInput.from_ints([60, 61, 62, want])).result()[-1]
            rates.append(p)
            data = [types.Datum(
                model_input=types.ModelInput.from_ints([60, 61, 62]),
                loss_fn_inputs={"target_tokens": [61, 62, want], "logprobs": [0.0, 0.0, p], "advantages": [0.0, 0.0, 1.0]},
            )]
            forward = client.forward_backward(data, loss, loss_fn_config=config)
            step = client.optim_step(types.AdamParams(learning_rate=1e-2))
            forward.result(), step.result()
        check(f"{loss} makes what is rewarded more likely", rates[-1] > rates[0], rates)
        service.close("success").result()


def check_two():
    alone = [train(args.url, seed) for seed in (1, 2)]
    found = [None, None]
    threads = [threading.Thread(target=lambda i=i: found.__setitem__(i, train(args.url, i + 1))) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("two clients at once get what each gets alone", found == alone, (alone, found))
    return alone


class Dropping(http.server.BaseHTTPRequestHandler):
    """Passes requests on, and drops the answer to each once: the client must ask again."""

    protocol_version = "HTTP/1.1"
    seen = set()
    lock = threading.Lock()

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        host = args.url.split("://")[1].rstrip("/")
        upstream = http.client.HTTPConnection(host, timeout=120)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
        headers["Host"] = host
        upstream.request(self.command, self.path, body, headers)
        r = upstream.getresponse()
        answer = r.read()
        key = (self.command, self.path, hashlib.sha256(body).digest())
        with self.lock:
            first = key not in self.seen
            self.seen.add(key)
        if first:
            self.close_connection = True
            return
        self.send_response(r.status)
        for k, v in r.getheaders():
            if k.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(k, v)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_DELETE = pass_on

    def log_message(self, *_):
        pass


def check_proxy(alone):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dropping)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = train(f"http://127.0.0.1:{server.server_address[1]}", 1)
    check("answers that are lost change nothing", found == alone[0], (alone[0], found))
    server.shutdown()


def check_cookbook():
    import chz  # noqa: F401
    from tinker_cookbook import renderers
    from tinker_cookbook.supervised import train as supervised
    from tinker_cookbook.supervised.data import FromConversationFileBuilder
    from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig
    from tinker_cookbook.tokenizer_utils import get_tokenizer, register_tokenizer
    from transformers import AutoTokenizer

    service, model = base_model()
    info = service.create_lora_training_client(base_model=model, rank=4).result().get_info()
    register_tokenizer(model, lambda: AutoTokenizer.from_pretrained(info.model_data.tokenizer_id))
    with tempfile.TemporaryDirectory() as tmp:
        rows = os.path.join(tmp, "rows.jsonl")
        with open(rows, "w") as f:
            for t in TEXTS * 4:
                f.write(json.dumps({"messages": [{"role": "user", "content": t[:6]}, {"role": "assistant", "content": t[6:]}]}) + "\n")
        config = supervised.Config(
            log_path=os.path.join(tmp, "sl"), recipe_name="check", model_name=model, learning_rate=1e-2, lora_rank=4, num_epochs=2, save_every=4, eval_every=0,
            dataset_builder=FromConversationFileBuilder(
                file_path=rows,
                common_config=ChatDatasetBuilderCommonConfig(model_name_for_tokenizer=model, renderer_name="role_colon", max_length=100, batch_size=8),
            ),
            base_url=args.url,
        )
        asyncio.run(supervised.main(config))
        metrics = [json.loads(x) for x in open(os.path.join(tmp, "sl", "metrics.jsonl"))]
        losses = [m["train_mean_nll"] for m in metrics if "train_mean_nll" in m]
        check("the cookbook's supervised loop: the loss falls", losses and losses[-1] < losses[0], losses)
        kept = [json.loads(x) for x in open(os.path.join(tmp, "sl", "checkpoints.jsonl"))]
        check("and keeps its checkpoints", kept and kept[-1]["state_path"].startswith("tinker://"), kept)

        rewards = check_rl(tmp, model, renderers, get_tokenizer)
        third = len(rewards) // 3
        first, last = sum(rewards[:third]) / third, sum(rewards[-third:]) / third
        check(f"the cookbook's RL loop with ppo: the reward rises, from {first:.2f} to {last:.2f}", last > first, rewards)


def check_rl(tmp, model, renderers, get_tokenizer):
    import chz
    from tinker_cookbook.rl import train as rl
    from tinker_cookbook.rl.problem_env import ProblemGroupBuilder
    from tinker_cookbook.rl.types import Env, RLDataset, RLDatasetBuilder, StepResult

    class Letters(Env):
        """The reward is how many of the sampled tokens are of the lower half."""

        def __init__(self, tokenizer, renderer):
            self.tokenizer, self.renderer = tokenizer, renderer

        async def initial_observation(self):
            messages = [{"role": "user", "content": "Say something"}]
            return self.renderer.build_generation_prompt(messages), self.renderer.get_stop_sequences()

        async def step(self, action, *, extra=None):
            reward = sum(t < 256 for t in action) / max(1, len(action))
            return StepResult(
                reward=reward, episode_done=True, next_observation=types.ModelInput.empty(),
                next_stop_condition=self.renderer.get_stop_sequences(), metrics={},
            )

    class Toy(RLDataset):
        def __init__(self, batches):
            self.batches = batches
            self.tokenizer = get_tokenizer(model)
            self.renderer = renderers.get_renderer("role_colon", self.tokenizer)

        def get_batch(self, index):
            return [ProblemGroupBuilder(env_thunk=lambda: Letters(self.tokenizer, self.renderer), num_envs=8, dataset_name="toy") for _ in range(2)]

        def __len__(self):
            return self.batches

    @chz.chz
    class ToyBuilder(RLDatasetBuilder):
        async def __call__(self):
            return Toy(9), None

    path = os.path.join(tmp, "rl")
    config = rl.Config(
        recipe_name="check", renderer_name="role_colon", learning_rate=2e-2, dataset_builder=ToyBuilder(), model_name=model, max_tokens=8, log_path=path, lora_rank=4,
        loss_fn="ppo", eval_every=0, save_every=4, base_url=args.url,
    )
    asyncio.run(rl.main(config))
    rows = [json.loads(x) for x in open(os.path.join(path, "metrics.jsonl"))]
    return [r["env/all/reward/total"] for r in rows if "env/all/reward/total" in r]


def check_fields():
    from tinker.proto import tinker_public_pb2 as public

    found = {}
    for name, message in public.DESCRIPTOR.message_types_by_name.items():
        found[name] = {f.name: f.number for f in message.fields}
    for name, enum in public.DESCRIPTOR.enum_types_by_name.items():
        found[name] = {v.name: v.number for v in enum.values}
    if args.write_fields:
        with open(args.fields, "w") as f:
            json.dump(found, f, indent=1, sort_keys=True)
            f.write("\n")
        return
    with open(args.fields) as f:
        known = json.load(f)
    for message, fields in known.items():
        for field, number in fields.items():
            now = found.get(message, {}).get(field)
            if now != number:
                check(f"{message}.{field} is field {number}", False, now)
    check("the fields of messages are those of the client", True)


def check_gap():
    """Samples, scores and trains on the same tokens: all log-probabilities must be equal."""
    service, model = base_model()
    clients = [service.create_lora_training_client(base_model=model, rank=r, seed=r).result() for r in (1, 8, 24)]
    tokenizer = clients[0].get_tokenizer()
    prompts = [tokenizer.encode(t) for t in TEXTS[:4]]
    compared, scoring, training = 0, 0.0, 0.0
    for step in range(4):
        samplers = [c.save_weights_and_get_sampling_client().result() for c in clients]
        params = types.SamplingParams(max_tokens=24, temperature=1.0, seed=step)
        # Requests of all adapters share the batches of the engine.
        asked = [[s.sample(types.ModelInput.from_ints(p), 4, params) for p in prompts] for s in samplers]
        for client, sampler, futures in zip(clients, samplers, asked):
            data, expected, scored = [], [], []
            for prompt, future in zip(prompts, futures):
                for seq in future.result().sequences:
                    ids = prompt + seq.tokens
                    scored.append(sampler.compute_logprobs(types.ModelInput.from_ints(ids)))
                    before = len(prompt) - 1
                    data.append(types.Datum(
                        model_input=types.ModelInput.from_ints(ids[:-1]),
                        loss_fn_inputs={"target_tokens": ids[1:], "logprobs": [0.0] * before + seq.logprobs,
                                        "advantages": [0.0] * before + [(-1.0) ** len(data)] * len(seq.tokens)},
                    ))
                    expected.append((len(prompt), seq.logprobs))
            forward, update = client.forward_backward(data, "importance_sampling"), client.optim_step(types.AdamParams(learning_rate=5e-3))
            outputs = forward.result().loss_fn_outputs
            update.result()
            for (start, sampled), future, out in zip(expected, scored, outputs):
                compared += len(sampled)
                scoring = max([scoring] + [abs(a - b) for a, b in zip(sampled, future.result()[start:])])
                training = max([training] + [abs(a - b) for a, b in zip(sampled, out["logprobs"].tolist()[start - 1:])])
    check(f"sampled = scored: max |Δ| = {scoring} of {compared} tokens", compared > 0 and scoring == 0)
    check(f"sampled = trained: max |Δ| = {training} of {compared} tokens", compared > 0 and training == 0)
    service.close("success").result()


def begin():
    service, model = base_model()
    client = service.create_lora_training_client(base_model=model, rank=8, seed=5).result()
    data = [datum(client.get_tokenizer(), t) for t in TEXTS]
    adam = types.AdamParams(learning_rate=1e-2)
    for _ in range(3):
        forward, step = client.forward_backward(data, "cross_entropy"), client.optim_step(adam)
        forward.result(), step.result()
    path = client.save_state("kept").result().path
    losses = []
    for _ in range(2):  # these steps are lost
        forward, step = client.forward_backward(data, "cross_entropy"), client.optim_step(adam)
        losses.append(forward.result().metrics["loss:sum"])
        step.result()
    print(json.dumps([path, losses]), flush=True)
    os._exit(0)  # as if this process were killed, too


def end(path, losses):
    service, _ = base_model()
    client = service.create_training_client_from_state_with_optimizer(path).result()
    data = [datum(client.get_tokenizer(), t) for t in TEXTS]
    found = []
    for _ in range(2):
        forward, step = client.forward_backward(data, "cross_entropy"), client.optim_step(types.AdamParams(learning_rate=1e-2))
        found.append(forward.result().metrics["loss:sum"])
        step.result()
    check("what was saved before a kill goes on to the same losses", found == losses, (found, losses))
    service.close("success").result()


if args.begin:
    begin()
if args.fields:
    check_fields()
if args.end:
    end(*json.loads(args.end))
elif args.gap:
    check_gap()
elif not args.write_fields:
    check_client()
    check_losses()
    alone = check_two()
    if args.proxy:
        check_proxy(alone)
    if args.cookbook:
        check_cookbook()
print(f"{failures} failures, tinker {tinker.__version__}")
sys.exit(failures > 0)
