"""Runs PyTorch and NumPy as a peer of lorafuse bench: answers requests line by line.

A request is a line of JSON with "do": begin, sample or end, and "id". begin has an "op" and its sizes. sample
returns {"seconds": the mean over enough calls to fill a fixed duration}; errors are {"error": text}.
"""
import gc
import itertools
import json
import os
import sys
import time

STRETCH = 5e-3
STRETCH_ON_GPU = 50e-3


def matmul(torch, r):
    """Computes op(A) op(B) with NumPy's BLAS or PyTorch into existing memory; A is [m,k], B is [k,n].

    Calls take turns over copies of all three, so that they do not stay in a cache."""
    shape = lambda rows, cols, t: (cols, rows) if t else (rows, cols)
    if r.get("numpy"):
        import numpy

        g = numpy.random.default_rng(0)
        a = g.random(shape(r["m"], r["k"], r["ta"]), dtype=numpy.float32)
        b = g.random(shape(r["k"], r["n"], r["tb"]), dtype=numpy.float32)
        out = numpy.empty((r["m"], r["n"]), numpy.float32)
        a, b = a.T if r["ta"] else a, b.T if r["tb"] else b
        return lambda: numpy.matmul(a, b, out=out)
    d = torch.bfloat16 if r["dtype"] == "bf16" else torch.float32
    on = r.get("device", "cpu")
    new = lambda *sizes: (2 * torch.rand(*sizes, device=on) - 1).to(d)
    sets = []
    for _ in range(r.get("copies", 1)):
        a, b = new(*shape(r["m"], r["k"], r["ta"])), new(*shape(r["k"], r["n"], r["tb"]))
        out = torch.empty(r["m"], r["n"], dtype=d, device=on)
        sets.append((a.T if r["ta"] else a, b.T if r["tb"] else b, out))
    turns = itertools.cycle(sets)

    def call():
        a, b, out = next(turns)
        torch.matmul(a, b, out=out)

    return call


def attention(torch, r):
    """Computes attention over several sequences, causal by default, or only its gradients."""
    d = torch.bfloat16 if r["dtype"] == "bf16" else torch.float32
    on, keys = r.get("device", "cpu"), r.get("kv_heads", r["heads"])
    new = lambda heads: torch.randn(r["texts"], heads, r["length"], r["dim"], dtype=d, device=on, requires_grad=r["back"])
    q, k, v = new(r["heads"]), new(keys), new(keys)
    more = {"enable_gqa": True} if keys != r["heads"] else {}
    forward = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=r.get("causal", True), **more)
    if not r["back"]:
        return forward
    with torch.enable_grad():
        o = forward()
    g = torch.randn_like(o)
    return lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True)


def step(torch, r):
    """Runs a training step of unmodified PEFT without autocast: a Llama with random bf16 weights, f32 or bf16 adapters."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, LlamaConfig

    on = r.get("device", "cpu")
    c = LlamaConfig(
        hidden_size=r["hidden"], num_hidden_layers=r["layers"], intermediate_size=r["inter"], num_attention_heads=r["heads"],
        num_key_value_heads=r["kv_heads"], vocab_size=r["vocab"], max_position_embeddings=max(8192, r["length"]), tie_word_embeddings=False, use_cache=False)
    torch.set_grad_enabled(True)
    try:
        with torch.device(on):
            model = AutoModelForCausalLM.from_config(c, dtype=torch.bfloat16, attn_implementation="sdpa")
            model = get_peft_model(
                model, LoraConfig(r=r["rank"], lora_alpha=2 * r["rank"], target_modules="all-linear", lora_dropout=0.0, task_type="CAUSAL_LM"),
                autocast_adapter_dtype=r["adapters"] == "f32")
        if r["checkpointing"]:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    finally:
        torch.set_grad_enabled(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    wanted = torch.float32 if r["adapters"] == "f32" else torch.bfloat16
    assert trained and all(p.dtype == wanted for p in trained), {p.dtype for p in trained}
    optimizer = torch.optim.AdamW(trained, lr=1e-5, weight_decay=0.0)
    ids = torch.randint(2, r["vocab"], (r["rows"], r["length"]), device=on)

    def call():
        with torch.enable_grad():
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        float(loss.detach())

    return call


MODELS = {}


def language_model(torch, r):
    """Returns the model of a folder, with or without a random adapter on all linear layers. Models are cached."""
    key = r["model"], r["dtype"], r["rank"]
    if key not in MODELS:
        os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
        from transformers import AutoModelForCausalLM

        d = torch.bfloat16 if r["dtype"] == "bf16" else torch.float32
        model = AutoModelForCausalLM.from_pretrained(r["model"], dtype=d, attn_implementation="sdpa")
        if r["rank"]:
            from peft import LoraConfig, get_peft_model

            model = get_peft_model(model, LoraConfig(r=r["rank"], lora_alpha=2 * r["rank"], target_modules="all-linear", task_type="CAUSAL_LM"))
        MODELS[key] = model.eval()
    return MODELS[key]


class Generation:
    """Measures the seconds per token after a context, or the seconds to process a prompt."""

    def __init__(self, torch, r):
        from transformers import DynamicCache

        self.torch, self.r, self.model, self.new_cache = torch, r, language_model(torch, r), DynamicCache
        self.ids = lambda a, b: torch.tensor([[5 + i * 7 % 200 for i in range(a, b)]])
        self.cache = None

    def read(self, ids):
        # Only the logits of the last token, as in generate.
        self.model(input_ids=ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)

    def sample(self):
        context = self.r["context"]
        with self.torch.inference_mode():
            if self.r["op"] == "prefill":
                self.cache = self.new_cache()
                start = time.perf_counter()
                self.read(self.ids(0, self.r["tokens"]))
                return time.perf_counter() - start
            if self.cache is None:
                self.cache = self.new_cache()
                self.read(self.ids(0, context))
            start = time.perf_counter()
            for i in range(self.r["tokens"]):
                self.read(self.ids(i, i + 1))
            took = time.perf_counter() - start
            self.cache.crop(-self.r["tokens"])
            return took / self.r["tokens"]


OPS = {"matmul": matmul, "attention": attention, "step": step}


class Task:
    def __init__(self, call, settle, stretch):
        self.call, self.settle, self.stretch, self.calls = call, settle, stretch, 0

    def mean(self):
        self.settle()
        start = time.perf_counter()
        for _ in range(self.calls):
            self.call()
        self.settle()
        return (time.perf_counter() - start) / self.calls

    def sample(self):
        if self.calls:
            return self.mean()
        self.calls = 1
        while True:
            mean = self.mean()
            if mean * self.calls >= self.stretch:
                return mean
            self.calls *= 2


def main():
    sys.path = [p for p in sys.path if p]  # do not import modules from the current folder
    threads = int(sys.argv[1])
    if threads:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(threads)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep output of libraries out of the answers
    import torch

    torch.set_grad_enabled(False)
    if threads:
        torch.set_num_threads(threads)
    tasks = {}
    for line in sys.stdin:
        r = json.loads(line)
        try:
            answer = {}
            if r["do"] == "begin":
                what = r["what"]
                on_gpu = what.get("device", "cpu") == "cuda"
                settle, stretch = (torch.cuda.synchronize, STRETCH_ON_GPU) if on_gpu else (lambda: None, STRETCH)
                tasks[r["id"]] = Generation(torch, what) if what["op"] in ("decode", "prefill") else Task(OPS[what["op"]](torch, what), settle, stretch)
            elif r["do"] == "sample":
                answer["seconds"] = tasks[r["id"]].sample()
            else:
                tasks.pop(r["id"], None)
                if "cuda" in torch.__dict__ and torch.cuda.is_initialized():
                    gc.collect()
                    torch.cuda.empty_cache()  # for later tasks
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=out, flush=True)


main()
