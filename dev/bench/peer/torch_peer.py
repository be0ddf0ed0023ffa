"""The peer of lorafuse bench that is PyTorch, and NumPy beside it: does what it is asked to, line by line.

A request is a line of JSON with "do": begin, sample or end, and "id". begin names an "op" and its sizes, sample
answers {"seconds": the mean of as many calls as take a stretch of time}; errors are {"error": text}.
"""
import json
import os
import sys
import time

STRETCH = 5e-3


def matmul(torch, r):
    """op(A) op(B) as NumPy's BLAS or PyTorch makes it, into memory that is there; A of [m,k], B of [k,n]."""
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
    a, b = torch.rand(shape(r["m"], r["k"], r["ta"])).to(d), torch.rand(shape(r["k"], r["n"], r["tb"])).to(d)
    out = torch.empty(r["m"], r["n"], dtype=d)
    a, b = a.T if r["ta"] else a, b.T if r["tb"] else b
    return lambda: torch.matmul(a, b, out=out)


def attention(torch, r):
    """Causal attention of some texts, or its gradients alone."""
    d = torch.bfloat16 if r["dtype"] == "bf16" else torch.float32
    new = lambda: torch.randn(r["texts"], r["heads"], r["length"], r["dim"], dtype=d, requires_grad=r["back"])
    q, k, v = new(), new(), new()
    forward = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    if not r["back"]:
        return forward
    with torch.enable_grad():
        o = forward()
    g = torch.randn_like(o)
    return lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True)


def lora(torch, r):
    """(x@A@B)*s as it is written."""
    x, a, b, s = torch.rand(r["m"], r["d"]), torch.rand(r["d"], r["r"]), torch.rand(r["r"], r["d"]), 2.0
    return lambda: (x @ a @ b) * s


MODELS = {}


def language_model(torch, r):
    """The model of a folder, with a random adapter on all linear layers or without; kept for the next time."""
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
    """Seconds for each of some tokens behind a context, or for reading a prompt."""

    def __init__(self, torch, r):
        from transformers import DynamicCache

        self.torch, self.r, self.model, self.new_cache = torch, r, language_model(torch, r), DynamicCache
        self.ids = lambda a, b: torch.tensor([[5 + i * 7 % 200 for i in range(a, b)]])
        self.cache = None

    def read(self, ids):
        # The logits of the last token alone, as in generate.
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


OPS = {"matmul": matmul, "attention": attention, "lora": lora}


class Task:
    def __init__(self, call):
        self.call, self.calls = call, 0

    def mean(self):
        start = time.perf_counter()
        for _ in range(self.calls):
            self.call()
        return (time.perf_counter() - start) / self.calls

    def sample(self):
        if self.calls:
            return self.mean()
        self.calls = 1
        while True:
            mean = self.mean()
            if mean * self.calls >= STRETCH:
                return mean
            self.calls *= 2


def main():
    sys.path = [p for p in sys.path if p]  # modules of the folder that this happens to run in are none of ours
    threads = int(sys.argv[1])
    if threads:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(threads)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
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
                tasks[r["id"]] = Generation(torch, what) if what["op"] in ("decode", "prefill") else Task(OPS[what["op"]](torch, what))
            elif r["do"] == "sample":
                answer["seconds"] = tasks[r["id"]].sample()
            else:
                del tasks[r["id"]]
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=out, flush=True)


main()
