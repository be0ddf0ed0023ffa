"""Runs llama.cpp (llama-cpp-python) as a peer of lorafuse bench: answers requests line by line.

A request is a line of JSON with "do": begin, sample or end, and "id"; see torch_peer.py. The ops are decode, which
returns the seconds per token after a context, and prefill, which returns the seconds to process a prompt.
"""
import json
import os
import sys
import time

sys.path = [p for p in sys.path if p]  # do not import modules from the current folder


class Model:
    def __init__(self, llama_cpp, path, positions, threads):
        self.model = llama_cpp.Llama(
            path, n_ctx=positions, n_threads=threads, n_threads_batch=threads, n_batch=512, n_ubatch=512, verbose=False, logits_all=False)

        self.there = 0  # number of tokens of the common text in the cache

    def read(self, n):
        """Fills the cache with exactly the first n tokens of the common text."""
        self.model.n_tokens = min(self.there, n)
        if self.there < n:
            self.model.eval([5 + i * 7 % 200 for i in range(self.there, n)])
        self.there = n


def decode(model, r):
    def sample():
        model.read(r["context"])
        start = time.perf_counter()
        for i in range(r["tokens"]):
            model.model.eval([7 + i % 100])
        return (time.perf_counter() - start) / r["tokens"]

    return sample


def prefill(model, r):
    def sample():
        model.model.reset()
        model.there = 0
        start = time.perf_counter()
        model.read(r["tokens"])
        return time.perf_counter() - start

    return sample


def main():
    threads = int(sys.argv[1]) or os.cpu_count()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep output of libraries out of the answers
    import llama_cpp

    tasks, models = {}, {}
    for line in sys.stdin:
        r = json.loads(line)
        try:
            answer = {}
            if r["do"] == "begin":
                what = r["what"]
                key = what["gguf"], what["positions"]
                if key not in models:
                    models[key] = Model(llama_cpp, *key, threads)
                tasks[r["id"]] = {"decode": decode, "prefill": prefill}[what["op"]](models[key], what)
            elif r["do"] == "sample":
                answer["seconds"] = tasks[r["id"]]()
            else:
                del tasks[r["id"]]
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=out, flush=True)


main()
