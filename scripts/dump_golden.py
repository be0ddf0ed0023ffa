#!/usr/bin/env python3
"""Write a safetensors file with `input_ids` (i64) and PyTorch's `logits` (f32), for `lorafuse compare`.

  python scripts/dump_golden.py --model MODEL --text "package main" --out golden.safetensors
  python scripts/dump_golden.py --model MODEL --adapter ADAPTER --ids ids.json --out golden.safetensors

--ids reads JSON ([1, 2, 3] or [[1, 2], [3, 4]]) or a safetensors file that holds `input_ids`.
The model is computed in float32 whatever type its weights are stored in.
"""
import argparse
import json
import sys


def read_ids(path):
    """The ids of a JSON or safetensors file as an i64 tensor."""
    import reference

    import torch

    if path.endswith(".safetensors"):
        tensors = reference.read_tensors(path)
        if "input_ids" not in tensors:
            reference.fail(f"{path}: no tensor input_ids, found {sorted(tensors)}")
        return tensors["input_ids"].long()
    try:
        with open(path, encoding="utf-8") as file:
            ids = torch.tensor(json.load(file))
    except (OSError, ValueError) as error:
        reference.fail(f"{path}: {error}")
    if ids.dtype != torch.int64:
        reference.fail(f"{path}: expected integers, found {ids.dtype}")
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="model folder")
    parser.add_argument("--adapter", help="PEFT adapter folder")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help="one row: this text, with the tokenizer's special tokens")
    source.add_argument("--ids", metavar="FILE", help="token ids: .json or .safetensors")
    parser.add_argument("--out", required=True, metavar="FILE")
    a = parser.parse_args()

    import reference

    import torch

    if a.text is not None:
        ids = torch.tensor([reference.load_tokenizer(a.model)(a.text).input_ids], dtype=torch.int64)
    else:
        ids = read_ids(a.ids)
    if ids.dim() == 1:
        ids = ids[None]
    if ids.dim() != 2 or ids.numel() == 0:
        reference.fail(f"input_ids must be [rows, length] and not empty, got shape {list(ids.shape)}")
    model = reference.load_model(a.model)
    if not 0 <= int(ids.min()) <= int(ids.max()) < model.config.vocab_size:
        reference.fail(f"token ids {int(ids.min())}..{int(ids.max())} do not fit a vocabulary of {model.config.vocab_size}")
    if a.adapter:
        try:
            model = reference.load_adapter(model, a.adapter)
        except ValueError as error:
            reference.fail(str(error))
    with torch.no_grad():
        logits = model(input_ids=ids).logits.float()
    reference.save_tensors(a.out, {"input_ids": ids, "logits": logits})
    print(f"{a.out}: input_ids {list(ids.shape)}, logits {list(logits.shape)}, largest |logit| {logits.abs().max():.6g}")


if __name__ == "__main__":
    sys.exit(main())
