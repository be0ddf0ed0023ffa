#!/usr/bin/env python3
"""Write small models whose weights are stored in 8-bit floats, with the logits of the weights that those stand for.

  python scripts/make_float8_goldens.py --out testdata/quant

Each case is a folder with config.json, model.safetensors in the layout of transformers' FineGrainedFP8 or of compressed-tensors,
and golden.safetensors: input_ids, logits (computed in float64 from the weights dequantised in float64) and of some weights
the dequantised values. train/ of the case in TRACES has ten steps of PEFT on those weights in float32, as in testdata/quant/nf4-odd.
"""
import argparse
import os
import re
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

import make_model
import quant_trace
import reference

LARGEST = 448.0
SHAPE = {"hidden": 48, "layers": 2, "inter": 40, "heads": 4, "kv_heads": 2, "vocab": 32, "positions": 64}
MOE = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}


def fine(block, scheme="dynamic", **more):
    return {"quant_method": "fp8", "activation_scheme": scheme, "weight_block_size": block, **more}


def compressed(strategy, block=None, ignore=("lm_head",)):
    weights = {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True, "dynamic": False, "group_size": None, "block_structure": block, "observer": "minmax"}
    group = {"format": "float-quantized", "targets": ["Linear"], "weights": weights, "input_activations": {**weights, "strategy": "token", "dynamic": True, "observer": None}, "output_activations": None}
    return {
        "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed", "config_groups": {"group_0": group},
        "ignore": list(ignore), "kv_cache_scheme": None, "global_compression_ratio": None, "sparsity_config": {}, "transform_config": {},
    }


# name: (architecture, changes of SHAPE, dtype of other tensors, quantization_config, modules left out, dtype of scales, how a weight is divided)
CASES = {
    "fp8-block": ("llama", {}, "bf16", fine([16, 8], modules_to_not_convert=["lm_head"]), ["lm_head"], torch.float32, (16, 8)),
    "fp8-block-odd": ("qwen2", {"hidden": 136, "heads": 17, "kv_heads": 1, "layers": 1, "inter": 16, "vocab": 20}, "bf16", fine([128, 128]), ["lm_head"], torch.float32, (128, 128)),
    "fp8-experts": ("qwen3_moe", {"inter": 24}, "bf16", fine([8, 16], modules_to_not_convert=["lm_head", "gate"]), ["lm_head", "mlp.gate"], torch.bfloat16, (8, 16)),
    "fp8-static": ("mistral", {}, "bf16", fine(None, "static", modules_to_not_convert=["model.layers.0.self_attn.o_proj", "lm_head"]), ["layers.0.self_attn.o_proj", "lm_head"], torch.bfloat16, "tensor"),
    "fp8-channel": ("qwen3", {}, "f16", compressed("channel", ignore=["lm_head", r"re:.*layers\.1.*down_proj"]), [r"layers\.1.*down_proj", "lm_head"], torch.bfloat16, "channel"),
    "fp8-tensor": ("llama", {"layers": 1}, "f32", compressed("tensor"), ["lm_head"], torch.float32, "tensor"),
}
TRACES = {"fp8-block": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}}


def quantise(w, how, dtype):
    """(codes, scales as stored, scales for each element)."""
    rows, columns = w.shape
    block = {"tensor": (rows, columns), "channel": (1, columns)}.get(how, how)
    grid = -(-rows // block[0]), -(-columns // block[1])
    index = (torch.arange(rows) // block[0])[:, None], (torch.arange(columns) // block[1])[None]
    scales = torch.zeros(grid)
    for i in range(grid[0]):
        for j in range(grid[1]):
            scales[i, j] = w[i * block[0] : (i + 1) * block[0], j * block[1] : (j + 1) * block[1]].abs().max() / LARGEST
    scales = scales.to(dtype)
    each = scales.double()[index]
    codes = (w.double() / each).clamp(-LARGEST, LARGEST).float().to(torch.float8_e4m3fn)
    return codes, scales[0, 0] if how == "tensor" else scales, each


def write(name, out):
    arch, changes, dtype, config, ignored, scale_dtype, how = CASES[name]
    folder, seed = os.path.join(out, name), 50 + sorted(CASES).index(name)
    shutil.rmtree(folder, ignore_errors=True)
    settings = make_model.model_config(arch, **{**SHAPE, **changes})
    if arch == "qwen3_moe":
        settings.update(MOE)
    make_model.write_model(folder, {**settings, "quantization_config": config}, dtype, seed)
    suffix = "_scale_inv" if config["quant_method"] == "fp8" else "_scale"
    stored, wide = {}, {}
    for key, w in load_file(os.path.join(folder, "model.safetensors")).items():
        stored[key], wide[key] = w, w.double()
        if w.ndim == 2 and "layers." in key and not any(re.search(i, key) for i in ignored):
            stored[key], stored[key + suffix], each = quantise(w.float(), how, scale_dtype)
            wide[key] = stored[key].double() * each
            if config.get("activation_scheme") == "static":
                stored[key.replace("weight", "activation_scale")] = torch.tensor(0.5, dtype=scale_dtype)
    save_file({k: v.contiguous() for k, v in stored.items()}, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    ids = torch.randint(2, settings["vocab_size"], (2, 10), generator=torch.Generator().manual_seed(seed))
    with tempfile.TemporaryDirectory() as plain:
        make_model.write_json(os.path.join(plain, "config.json"), {**settings, "dtype": "float64"})
        save_file({k: v.contiguous() for k, v in wide.items()}, os.path.join(plain, "model.safetensors"), metadata={"format": "pt"})
        with torch.no_grad():
            model = reference.load_model(plain, torch.float64)
            model.set_experts_implementation("eager")  # which multiplies float64
            logits = model(input_ids=ids).logits.float()
        if name in TRACES:
            quant_trace.record(reference.load_model(plain), folder, TRACES[name], seed)
    shown = {f"weights.{k}": v.float() for k, v in wide.items() if re.search(r"layers\.0\.(self_attn\.k|mlp\.down|.*experts\.1\.down)_proj", k)}
    reference.save_tensors(os.path.join(folder, "golden.safetensors"), {"input_ids": ids, "logits": logits, **shown})
    print(f"{name:14} {sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)):7,} bytes, largest |logit| {logits.abs().max():.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the cases; a case that is there is replaced")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), help="cases to write; default all")
    a = parser.parse_args()
    torch.set_num_threads(1)
    for name in a.only or CASES:
        write(name, a.out)


if __name__ == "__main__":
    sys.exit(main())
