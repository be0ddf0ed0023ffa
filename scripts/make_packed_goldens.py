#!/usr/bin/env python3
"""Write small models whose weights GPTQ or AWQ stores, with the logits of the weights that those stand for.

  python scripts/make_packed_goldens.py --out testdata/quant [--gptqmodel SDIST] [--autoawq SDIST]

Each case is a folder with config.json, model.safetensors in the layout of GPTQModel's or AutoAWQ's packing, and
golden.safetensors: input_ids, logits (computed in float64 from the dequantised weights) and of some weights the dequantised
values, scale * (code - zero point) in float32. train/ of the cases in TRACES has ten steps of PEFT on those weights in float32.
With the unpacked source archives of gptqmodel and autoawq, their own functions dequantise each weight too, and must agree.
"""
import argparse
import ast
import os
import re
import shutil
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import make_model
import quant_trace
import reference

SHAPE = {"hidden": 64, "layers": 2, "inter": 96, "heads": 4, "kv_heads": 2, "vocab": 32, "positions": 64}
MOE = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def gptq(bits=4, group=32, sym=False, act=False, form="gptq", **more):
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "desc_act": act, "checkpoint_format": form, "pack_dtype": "int32", "lm_head": False, **more}


def awq(group=32, **more):
    return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm", "modules_to_not_convert": None, **more}


# name: (architecture, changes of SHAPE, quantization_config, modules left out, changes by module: bits, group, scale dtype)
CASES = {
    "gptq-4": ("llama", {}, gptq(sym=True), ["lm_head"], {}),
    "gptq-4-act": ("qwen2", {}, gptq(group=32, act=True), ["lm_head"], {}),
    "gptq-4-v2": ("qwen3", {}, gptq(group=64, form="gptq_v2", lm_head=True), [r"layers\.1\.mlp"], {}),
    "gptq-3": ("mistral", {"layers": 1}, gptq(bits=3, group=-1), ["lm_head"], {}),
    "gptq-2": ("llama", {"layers": 1}, gptq(bits=2, group=32), ["lm_head"], {"v_proj": {"dtype": torch.bfloat16}}),
    "gptq-8": ("llama", {"layers": 1}, gptq(bits=8, group=32), ["lm_head"], {}),
    "gptq-16": ("llama", {"layers": 1}, gptq(group=16), ["lm_head"], {}),
    "gptq-dynamic": ("llama", {"layers": 1}, gptq(dynamic={r"-:.*o_proj": {}, r"+:.*down_proj": {"bits": 8, "group_size": 32}, r".*up_proj": {"bits": 2}}),
                     ["lm_head", "o_proj"], {"down_proj": {"bits": 8}, "up_proj": {"bits": 2}}),
    "gptq-experts": ("qwen3_moe", {"layers": 1}, gptq(), ["lm_head", "mlp.gate.weight"], {}),
    "awq": ("llama", {}, awq(), ["lm_head"], {}),
    "awq-mixed": ("qwen2", {"layers": 1}, awq(group=-1, modules_to_not_convert=["q_proj"]), ["lm_head", "q_proj"], {}),
}
TRACES = {name: {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]} for name in ["gptq-4", "awq"]}


def stream(values, bits):
    """Numbers [n, m] as consecutive bits of 32-bit words [n * bits / 32, m]."""
    planes = (values.numpy().astype(np.uint64)[:, None, :] >> np.arange(bits, dtype=np.uint64)[None, :, None]) & 1
    planes = planes.reshape(-1, 32, values.shape[1])
    words = (planes << np.arange(32, dtype=np.uint64)[None, :, None]).sum(axis=1)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32).copy())


def interleaved(values):
    """Numbers [n, m] as AutoAWQ packs eight of a row."""
    blocks = values.reshape(values.shape[0], -1, 8)[:, :, AWQ_ORDER].to(torch.int64)
    words = (blocks << (4 * torch.arange(8))).sum(dim=2) & 0xFFFFFFFF
    return torch.from_numpy(words.numpy().astype(np.uint32).view(np.int32).copy())


def quantise(w, config, changes, generator):
    """(tensors by suffix, the weight that they stand for in float32)."""
    out, inner = w.shape
    bits = changes.get("bits", config["bits"])
    group = config["group_size"] if config["group_size"] > 0 else inner
    index = torch.arange(inner) // group
    if config.get("desc_act"):
        index = index[torch.randperm(inner, generator=generator)]
    count = int(index.max()) + 1
    scales, zeros = torch.zeros(count, out), torch.zeros(count, out, dtype=torch.int64)
    top = (1 << bits) - 1
    for g in range(count):
        part = w[:, index == g]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        if config.get("sym"):
            high = torch.maximum(high, -low)
            low = -high
        scales[g] = (high - low).clamp(min=1e-4) / top
        zeros[g] = torch.full_like(zeros[g], (top + 1) // 2) if config.get("sym") else torch.round(-low / scales[g]).long()
    scales = scales.to(changes.get("dtype", torch.float16))
    if config.get("checkpoint_format") == "gptq":
        zeros = zeros.clamp(min=1)
    zeros = zeros.clamp(max=top)
    codes = (torch.round(w.T / scales.float()[index]).long() + zeros[index]).clamp(0, top)
    wide = (scales.float()[index] * (codes - zeros[index]).float()).T.contiguous()
    if config["quant_method"] == "awq":
        return {"qweight": interleaved(codes), "qzeros": interleaved(zeros), "scales": scales}, wide
    shift = 1 if config["checkpoint_format"] == "gptq" else 0
    tensors = {"qweight": stream(codes, bits), "qzeros": stream((zeros - shift).T, bits).T.contiguous(), "scales": scales}
    if config["group_size"] != 64:  # which GPTQModel may leave out
        tensors["g_idx"] = index.to(torch.int32)
    return tensors, wide


def functions(path, names, **known):
    """Functions of a Python file, without its imports."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names or isinstance(n, ast.Assign) and n.targets[0].id in names]
    space = {"torch": torch, **known}
    exec(compile(tree, path, "exec"), space)  # noqa: S102
    return space


def check(tensors, wide, config, bits, tools):
    """Compares with the functions of the tools."""
    def unpacked(name, *wanted):
        return functions(os.path.join(tools[name], *wanted[0]), wanted[1], **(wanted[2] if len(wanted) > 2 else {}))

    inner, group = wide.shape[1], config["group_size"]
    if config["quant_method"] == "awq" and tools["autoawq"]:
        f = unpacked("autoawq", ("awq", "utils", "packing_utils.py"), ["AWQ_ORDER", "AWQ_REVERSE_ORDER", "unpack_awq", "reverse_awq_order", "dequantize_gemm"])
        theirs = f["dequantize_gemm"](tensors["qweight"], tensors["qzeros"], tensors["scales"].float(), 4, group if group > 0 else inner)
        assert torch.equal(theirs.T, wide)
    if config["quant_method"] == "gptq" and tools["gptqmodel"]:
        f = unpacked("gptqmodel", ("gptqmodel", "utils", "model_dequant.py"), ["unpack_cols", "unpack_rows", "pack_cols", "_require_int32_words_for_3bit", "_unpack_cols_3bit", "_pack_cols_3bit", "_unpack_rows_3bit", "_shift_gptq_qzeros", "_correct_gptq_v1_qzeros"], {"PLANAR_BITS": ()})
        codes, zeros = f["unpack_rows"](tensors["qweight"], bits), tensors["qzeros"]
        if config["checkpoint_format"] == "gptq":
            zeros = f["_correct_gptq_v1_qzeros"](zeros, bits)
        zeros = f["unpack_cols"](zeros, bits)
        index = tensors.get("g_idx", torch.arange(inner) // group).long()
        theirs = tensors["scales"].float()[index] * (codes - zeros[index]).float()
        assert torch.equal(theirs.T, wide)


def write(name, out, tools):
    arch, changes, config, ignored, special = CASES[name]
    folder, seed = os.path.join(out, name), 80 + sorted(CASES).index(name)
    shutil.rmtree(folder, ignore_errors=True)
    settings = make_model.model_config(arch, **{**SHAPE, **changes})
    if arch == "qwen3_moe":
        settings.update(MOE)
    make_model.write_model(folder, {**settings, "quantization_config": config}, "f16", seed)
    generator = torch.Generator().manual_seed(seed)
    stored, wide = {}, {}
    for key, w in load_file(os.path.join(folder, "model.safetensors")).items():
        linear = w.ndim == 2 and "embed" not in key and not any(re.search(i, key) for i in ignored)
        if not linear:
            stored[key], wide[key] = w, w.double()
            continue
        module = key.removesuffix(".weight")
        own = next((v for k, v in special.items() if module.endswith(k)), {})
        tensors, values = quantise(w.float(), config, own, generator)
        check(tensors, values, config, own.get("bits", config["bits"]), tools)
        stored.update({f"{module}.{k}": v for k, v in tensors.items()})
        wide[key] = values.double()
    save_file({k: v.contiguous() for k, v in stored.items()}, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    ids = torch.randint(2, settings["vocab_size"], (2, 10), generator=generator)
    with tempfile.TemporaryDirectory() as plain:
        make_model.write_json(os.path.join(plain, "config.json"), {**settings, "dtype": "float64"})
        save_file({k: v.contiguous() for k, v in wide.items()}, os.path.join(plain, "model.safetensors"), metadata={"format": "pt"})
        with torch.no_grad():
            model = reference.load_model(plain, torch.float64)
            if arch == "qwen3_moe":
                model.set_experts_implementation("eager")  # which multiplies float64
            logits = model(input_ids=ids).logits.float()
        if name in TRACES:
            quant_trace.record(reference.load_model(plain), folder, TRACES[name], seed)
    shown = {f"weights.{k}": v.float() for k, v in wide.items() if re.search(r"layers\.0\.(self_attn\.[kv]|mlp\.(down|up)|.*experts\.1\.down)_proj.weight|lm_head", k)}
    reference.save_tensors(os.path.join(folder, "golden.safetensors"), {"input_ids": ids, "logits": logits, **shown})
    print(f"{name:14} {sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)):7,} bytes, largest |logit| {logits.abs().max():.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the cases; a case that is there is replaced")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), help="cases to write; default all")
    parser.add_argument("--gptqmodel", help="folder of its unpacked source archive")
    parser.add_argument("--autoawq", help="folder of its unpacked source archive")
    a = parser.parse_args()
    torch.set_num_threads(1)
    for name in a.only or CASES:
        write(name, a.out, vars(a))


if __name__ == "__main__":
    sys.exit(main())
