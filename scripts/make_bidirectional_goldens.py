#!/usr/bin/env python3
"""Write what PyTorch computes with decoders whose config.json makes attention bidirectional.

The models are from testdata, with the changes of config.json listed in cases.json. NAME.safetensors has `input_ids`
[rows, length]
with an `attention_mask` (padding on the right), `logits` and `hidden` (after the final norm), both zero at padding; of a
classifier `scores`. embed.safetensors has the vectors that sentence-transformers makes of texts.json, by the pooling of the
folder (`embedding`) and by the one that it takes without modules.json (`embedding.unlisted`). Attention is eager: without
padding, SDPA of transformers 5.23 drops the mask and is causal again.

  python scripts/make_bidirectional_goldens.py --out testdata/bidirectional
"""
import argparse
import json
import os
import shutil
import sys
import tempfile

import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification

import make_model
import reference

LENGTHS = (20, 13)
OFF = {"is_causal": False}
GEMMA = {"use_bidirectional_attention": True}

# name: (model in testdata, changes of its config.json; null removes a key)
CASES = {
    "llama": ("extra/llama-f32", OFF),
    "mistral-window": ("extra/mistral-window", OFF),
    "mixtral-window": ("extra/mixtral", OFF),
    "qwen2-mixed-windows": ("extra/qwen2-mixed-windows", OFF),
    "qwen3": ("extra/qwen3-biases", OFF),
    "qwen3-window": ("extra/qwen3-biases", {**OFF, "use_sliding_window": True, "sliding_window": 1, "max_window_layers": 1, "layer_types": None}),
    "qwen3-moe-window": ("extra/qwen3-moe", {**OFF, "use_sliding_window": True, "sliding_window": 5}),
    "gemma3-causal-off": ("extra/gemma3-linear", OFF),
    "gemma3": ("extra/gemma3-linear", GEMMA),
    "gemma3-even": ("extra/gemma3-linear", {**GEMMA, "sliding_window": 8}),
    "gemma3-one": ("extra/gemma3-linear", {**GEMMA, "sliding_window": 1}),
    "gemma3-both": ("extra/gemma3-linear", {**GEMMA, **OFF}),
    "null": ("extra/llama-f32", {"is_causal": "None"}),
    "qwen2_5_vl": ("dit/qwen2_5_vl", {"text_config": OFF}),
    "classifier": ("tasks/classes-llama/merged", OFF),
    "gemma2": ("extra/gemma2", OFF),
    "olmo2": ("extra/olmo2", OFF),
}


def changed(source, changes, folder):
    """A copy of a model with changes of config.json."""
    shutil.copytree(source, folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    for key, value in changes.items():
        if value is None:
            config.pop(key, None)
        elif isinstance(value, dict):
            config[key].update(value)
        else:
            config[key] = None if value == "None" else value
    make_model.write_json(path, config)
    return folder


def golden(folder, seed):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    ids = torch.randint(3, config.get("text_config", config)["vocab_size"] - 25, (len(LENGTHS), max(LENGTHS)), generator=torch.Generator().manual_seed(seed))
    mask = torch.tensor([[int(i < n) for i in range(max(LENGTHS))] for n in LENGTHS])
    ids = torch.where(mask == 1, ids, torch.full_like(ids, config.get("pad_token_id") or 0))
    out = {"input_ids": ids, "attention_mask": mask}
    with torch.no_grad():
        if config["architectures"][0].endswith("ForSequenceClassification"):
            model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
            out["scores"] = model(input_ids=ids, attention_mask=mask).logits
            return out
        if "text_config" in config:
            model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        else:
            model = reference.load_model(folder)
        result = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    if "logits" in result:
        out["logits"] = result.logits * mask[..., None]
    out["hidden"] = result.hidden_states[-1] * mask[..., None]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testdata", default="testdata", help="folder of the models")
    parser.add_argument("--out", required=True, help="folder of the goldens")
    a = parser.parse_args()
    torch.set_num_threads(1)  # deterministic order of summation
    torch.use_deterministic_algorithms(True)
    os.makedirs(a.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        for i, (name, (source, changes)) in enumerate(CASES.items()):
            folder = changed(os.path.join(a.testdata, source), changes, os.path.join(tmp, name))
            tensors = golden(folder, 3000 + i)
            reference.save_tensors(os.path.join(a.out, name + ".safetensors"), tensors)
            print(f"{name:20} {', '.join(f'{k} {list(t.shape)}' for k, t in tensors.items())}")
        encoders = os.path.join(a.testdata, "encoders")
        with open(os.path.join(encoders, "texts.json"), encoding="utf-8") as file:
            texts = json.load(file)
        folder = changed(os.path.join(encoders, "llama"), OFF, os.path.join(tmp, "embed"))
        out = {}
        for name in ("embedding", "embedding.unlisted"):
            if name.endswith("unlisted"):
                os.remove(os.path.join(folder, "modules.json"))
            st = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"})
            print(name, st)
            out[name] = torch.from_numpy(st.encode(texts, batch_size=4))
        reference.save_tensors(os.path.join(a.out, "embed.safetensors"), out)
    make_model.write_json(os.path.join(a.out, "cases.json"), {name: {"model": source, "config": changes} for name, (source, changes) in CASES.items()})


if __name__ == "__main__":
    sys.exit(main())
