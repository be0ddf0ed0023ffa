#!/usr/bin/env python3
"""Write how far PyTorch's attention in bfloat16 is from the exact one, forward and backward.

The inputs are the numbers of backend/cuda/attention_test.go. Written is the root mean square of the difference to float64,
relative to that of the exact result: what the CUDA kernels must not exceed with --precision bf16.

  python scripts/make_attention_goldens.py --out backend/cuda/testdata/attention_rounding.json
"""
import argparse
import json
import pathlib

import numpy
import torch

# Queries, heads, key heads, head size, document length.
SHAPES = [(96, 4, 2, 64, 96), (150, 4, 1, 128, 60), (80, 2, 2, 32, 80), (70, 2, 1, 256, 70)]


def numbers(seed, n):
    with numpy.errstate(over="ignore"):
        u = numpy.uint64
        z = u(seed << 32) + (numpy.arange(n, dtype=u) + u(1)) * u(0x9E3779B97F4A7C15)
        z = (z ^ z >> u(30)) * u(0xBF58476D1CE4E5B9)
        z = (z ^ z >> u(27)) * u(0x94D049BB133111EB)
        z ^= z >> u(31)
    return (((z >> u(11)).astype(numpy.float64) / 2.0**53 - 0.5) * 3.5).astype(numpy.float32)


def attention(shape, dtype):
    n, heads, kv_heads, dim, document = shape
    sizes = (heads, kv_heads, kv_heads, heads)
    q, k, v, do = (torch.from_numpy(numbers(i + 1, n * h * dim)).reshape(n, h, dim).transpose(0, 1)[None].to(dtype)
                   for i, h in enumerate(sizes))
    inputs = [x.contiguous().requires_grad_() for x in (q, k, v)]
    i = torch.arange(n)
    mask = (i[:, None] >= i[None, :]) & (i[:, None] // document == i[None, :] // document)
    o = torch.nn.functional.scaled_dot_product_attention(*inputs, attn_mask=mask, enable_gqa=True)
    o.backward(do)
    return dict(zip(("o", "dq", "dk", "dv"), [o.detach()] + [x.grad for x in inputs]))


def rms(x):
    return float(x.double().pow(2).mean().sqrt())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="file to write")
    a = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for shape in SHAPES:
        exact, rounded = attention(shape, torch.float64), attention(shape, torch.bfloat16)
        error = {name: round(rms(rounded[name].double() - x) / rms(x), 6) for name, x in exact.items()}
        rows.append(dict(zip(("n", "heads", "kvheads", "dim", "document"), shape), error=error))
        print(rows[-1])
    a.out.parent.mkdir(parents=True, exist_ok=True)
    a.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
