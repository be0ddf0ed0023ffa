#!/usr/bin/env python3
"""Load an adapter of a classifier or an embedding model with PEFT, and compare its results with lorafuse's.

Any tensor that PEFT misses or does not expect is an error. Exit code 1 when the largest difference over the largest
number exceeds --tolerance.

  lorafuse eval --model MODEL --adapter OUT --data rows.jsonl --scores scores.safetensors
  python scripts/check_task_adapter.py --model MODEL --adapter OUT --rows rows.jsonl --numbers scores.safetensors

  lorafuse embed --model MODEL --adapter OUT --input texts.jsonl --output vectors.safetensors
  python scripts/check_task_adapter.py --model MODEL --adapter OUT --rows texts.jsonl --numbers vectors.safetensors

--rows are lines of text, and perhaps text_pair. The classes are read from classes.json next to the
adapter.
"""
import argparse
import json
import os
import sys

import reference
import torch


def scores(model_dir, adapter, rows, length):
    """The logits of a classifier, a row at a time."""
    from transformers import AutoModelForSequenceClassification

    with open(os.path.join(adapter, "classes.json"), encoding="utf-8") as file:
        classes = json.load(file)
    classes["id2label"] = {int(i): name for i, name in classes["id2label"].items()}
    model = AutoModelForSequenceClassification.from_pretrained(model_dir, dtype=torch.float32, **classes)
    model = reference.load_adapter(model, adapter)
    tokenizer = reference.load_tokenizer(model_dir)
    out = []
    for row in rows:
        texts = [row["text"]] + ([row["text_pair"]] if row.get("text_pair") is not None else [])
        inputs = tokenizer(*texts, truncation=True, max_length=length, return_tensors="pt")
        with torch.no_grad():
            out.append(model(**inputs).logits[0])
    return torch.stack(out)


def vectors(model_dir, adapter, rows):
    """The embeddings returned by SentenceTransformer.encode."""
    from sentence_transformers import SentenceTransformer

    st = SentenceTransformer(model_dir, device="cpu", model_kwargs={"dtype": torch.float32})
    reference.load_adapter(st[0].auto_model, adapter)
    return torch.from_numpy(st.eval().encode([row["text"] for row in rows]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="model folder")
    parser.add_argument("--adapter", required=True, help="adapter folder to judge")
    parser.add_argument("--rows", required=True, help="JSONL of texts")
    parser.add_argument("--numbers", required=True, metavar="FILE", help="safetensors that lorafuse has written for the rows")
    parser.add_argument("--max-length", type=int, default=512, help="tokens of a row of a classifier")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="largest relative difference (default 1e-5)")
    a = parser.parse_args()
    with open(os.path.join(a.adapter, "adapter_config.json"), encoding="utf-8") as file:
        task = json.load(file)["task_type"]
    rows = reference.read_jsonl(a.rows)
    if task == "SEQ_CLS":
        name, want = "scores", scores(a.model, a.adapter, rows, a.max_length)
    elif task == "FEATURE_EXTRACTION":
        name, want = "embeddings", vectors(a.model, a.adapter, rows)
    else:
        reference.fail(f"{a.adapter}: task_type {task}, expected SEQ_CLS or FEATURE_EXTRACTION")
    got = reference.read_tensors(a.numbers)
    if name not in got or got[name].shape != want.shape:
        reference.fail(f"{a.numbers}: found { {k: list(v.shape) for k, v in got.items()} }, expected {name} {list(want.shape)}")
    largest = float((got[name] - want).abs().max())
    relative = largest / float(want.abs().max())
    good = relative <= a.tolerance  # a NaN is not
    print(f"{name}: {list(want.shape)}, max abs {largest:.3e}, relative {relative:.3e}, tolerance {a.tolerance:g}: {'ok' if good else 'DIFFERS'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
