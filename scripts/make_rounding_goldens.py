#!/usr/bin/env python3
"""Write how far PyTorch's bfloat16 arithmetic is from the exact logits of the tiny models in the test data.

For each folder with a config.json and a golden.safetensors (beside it or one above) the logits of its input_ids are computed in
f64 and, from f32 weights, under autocast to bfloat16. Written is the root mean square of their difference, relative to
that of the logits: what lorafuse must not exceed with --precision bf16.

  python scripts/make_rounding_goldens.py --data testdata --out testdata/rounding.json
"""
import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file

import reference


def rms(x):
    return float(x.double().pow(2).mean().sqrt())


def relative_error(folder, golden):
    ids = load_file(golden)["input_ids"]
    with torch.no_grad():
        exact = reference.load_model(folder, torch.float64)(input_ids=ids).logits
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = reference.load_model(folder)(input_ids=ids).logits
    return rms(rounded.double() - exact) / rms(exact)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder of the test data")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="file to write")
    a = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for config in sorted(a.data.glob("**/config.json")):
        folder = config.parent
        for golden in (folder / "golden.safetensors", folder.parent / "golden.safetensors"):
            if golden.exists() and (folder / "model.safetensors").exists() and folder.name != "model-bf16":
                found[folder.relative_to(a.data).as_posix()] = round(relative_error(folder, golden), 6)
                print(folder, found[folder.relative_to(a.data).as_posix()])
                break
    if not found:
        reference.fail(f"{a.data}: no model with a golden.safetensors")
    a.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
