#!/usr/bin/env python3
"""Write what bitsandbytes makes of weights, and small models that it has quantised, with logits and a training trace.

  pip install -r scripts/requirements.txt bitsandbytes==0.50.2
  python scripts/make_quant_goldens.py --out .

internal/quant/testdata/bitsandbytes.safetensors: for each case of weights `x`
  nf4.CASE.x, .codes, .absmax, .values                     and the same for fp4
  nested.CASE.absmax, .codes, .nested_absmax, .map, .values  double quantisation of absmax; its offset is in the metadata
  int8.CASE.x, .codes, .scb, .values                       LLM.int8
testdata/quant/NAME: a model as transformers saves it after loading in 4 or 8 bits, with golden.safetensors:
  input_ids, logits                                        computed in f32 from the dequantised weights
and for those named in TRACES train/: init/, batches.safetensors, grads_step0.safetensors, trace.json, final/ as in testdata/peft,
made by PEFT on the quantised model. The same command gives the same bytes on one machine.
"""
import argparse
import os
import shutil
import sys
import tempfile

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import make_model
import quant_trace
import reference

WHOLE = {"hidden": 64, "layers": 2, "inter": 128, "heads": 4, "kv_heads": 2, "vocab": 96, "positions": 64}
# Blocks begin within rows. bitsandbytes' CPU kernel uses the scales of wrong blocks if the number of such rows is a multiple of 16.
ODD = {"hidden": 50, "layers": 1, "inter": 82, "heads": 5, "kv_heads": 1, "vocab": 96, "positions": 64}
EIGHT = {"load_in_8bit": True}


def four(kind, double):
    return {"load_in_4bit": True, "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": double, "bnb_4bit_compute_dtype": "float32"}


# name: (architecture, shape, stored dtype, quantization)
MODELS = {
    "nf4": ("llama", WHOLE, "bf16", four("nf4", False)),
    "nf4-double": ("qwen2", WHOLE, "bf16", four("nf4", True)),
    "nf4-odd": ("llama", ODD, "f32", four("nf4", True)),
    "fp4-odd": ("llama", ODD, "f16", four("fp4", False)),
    "int8": ("llama", WHOLE, "bf16", EIGHT),
    "int8-odd": ("llama", ODD, "f16", EIGHT),
}
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TRACES = {
    "nf4-double": {"r": 4, "lora_alpha": 8, "target_modules": LINEARS},
    "nf4-odd": {"r": 3, "lora_alpha": 6, "target_modules": LINEARS, "use_dora": True},
}


def weights():
    """{case: f32 weights}: whole blocks, a piece of one, zeros, extremes, numbers half way between two codes."""
    g = torch.Generator().manual_seed(1)
    ties = torch.zeros(256)
    for i, kind in enumerate(("nf4", "fp4")):
        code = bnb.get_4bit_type(kind, device="cpu").sort().values
        bounds = (code[1:] + code[:-1]) / 2
        for j, side in enumerate((bounds, torch.nextafter(bounds, torch.tensor(2.0)), torch.nextafter(bounds, torch.tensor(-2.0)))):
            ties[128 * i + 16 * j : 128 * i + 16 * j + 15] = side
        ties[128 * i + 63] = 1.0
        ties[128 * i + 64 : 128 * i + 128] = ties[128 * i : 128 * i + 64] * 3
    return {
        "normal": torch.randn(48, 64, generator=g),
        "odd": torch.randn(7, 30, generator=g) * 0.02,  # 210 elements: the last block has 18
        "bf16": (torch.randn(16, 64, generator=g) * 0.05).bfloat16().float(),
        "zeros": torch.cat([torch.zeros(1, 64), torch.randn(1, 64, generator=g)]),
        "extremes": torch.stack([torch.randn(64, generator=g) * s for s in (1e-30, 1e-6, 1e6, 1e30)]),
        "ties": ties.view(4, 64),
    }


def write_tensors(out):
    tensors, metadata = {}, {}
    for case, x in weights().items():
        for kind in ("nf4", "fp4"):
            codes, state = bnb.quantize_4bit(x, blocksize=64, quant_type=kind)
            values = bnb.dequantize_4bit(codes, state)
            tensors.update({f"{kind}.{case}.x": x, f"{kind}.{case}.codes": codes, f"{kind}.{case}.absmax": state.absmax, f"{kind}.{case}.values": values})
        scb_codes, scb, _ = bnb.int8_vectorwise_quant(x.half()) if case not in ("extremes",) else (None, None, None)
        if scb is not None:
            values = bnb.int8_vectorwise_dequant(scb_codes, scb)
            tensors.update({f"int8.{case}.codes": scb_codes, f"int8.{case}.scb": scb, f"int8.{case}.values": values.float()})
    g = torch.Generator().manual_seed(2)
    for case, absmax in {"short": torch.rand(24, generator=g), "long": torch.rand(600, generator=g) * 0.1 + 0.01}.items():
        offset = absmax.mean()
        codes, state = bnb.quantize_blockwise(absmax - offset, blocksize=256)
        values = bnb.dequantize_blockwise(codes, state) + offset
        tensors.update({f"nested.{case}.codes": codes, f"nested.{case}.nested_absmax": state.absmax, f"nested.{case}.map": state.code, f"nested.{case}.values": values})
        metadata[f"nested.{case}.offset"] = repr(offset.item())
    os.makedirs(os.path.dirname(out), exist_ok=True)
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, out, metadata=metadata)


def load(folder, quantization=None, dtype=torch.float32):
    how = {"quantization_config": BitsAndBytesConfig(**quantization)} if quantization else {}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map="cpu", attn_implementation="eager", **how).eval()
    for p in model.parameters():
        if dtype == torch.float32 and p.is_floating_point():
            p.data = p.data.float()  # norms and embeddings keep the dtype of the file
        if dtype == torch.float32 and getattr(p, "quant_state", None) is not None:
            p.quant_state.dtype = dtype  # otherwise weights are rounded to their former dtype
            check(p)
    return model


def check(p):
    """Ends the script where bitsandbytes does not give code times scale."""
    s = p.quant_state
    absmax = s.absmax if not s.nested else bnb.dequantize_blockwise(s.absmax, s.state2) + s.offset
    codes = torch.stack((p.data.flatten() >> 4, p.data.flatten() & 15), 1).flatten()[: s.shape.numel()].long()
    want = s.code[codes] * absmax.repeat_interleave(s.blocksize)[: s.shape.numel()]
    if not torch.equal(want.view(s.shape), bnb.dequantize_4bit(p.data, s)):
        reference.fail(f"bitsandbytes dequantises {list(s.shape)} wrongly")


def write_model(name, out):
    arch, shape, dtype, quantization = MODELS[name]
    folder, seed = os.path.join(out, name), 10 + sorted(MODELS).index(name)
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as plain:
        make_model.write_model(plain, make_model.model_config(arch, **shape), seed=seed, dtype=dtype)
        stored = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
        model = load(plain, quantization, stored)
        model.save_pretrained(folder)
    ids = torch.randint(2, shape["vocab"], (2, 10), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = load(folder).dequantize().float()(input_ids=ids).logits
    reference.save_tensors(os.path.join(folder, "golden.safetensors"), {"input_ids": ids, "logits": logits})
    if shape is WHOLE:  # bitsandbytes cannot multiply the other shapes in bfloat16
        with torch.no_grad():
            own = load(folder)(input_ids=ids).logits.float()
        error = float((own - logits).abs().max() / logits.abs().max())
        print(f"{name}: bitsandbytes' own products differ from those of the dequantised weights by {error:.2g} of the largest logit")
    if name in TRACES:
        quant_trace.record(load(folder), folder, TRACES[name], seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=".", help="root of the repository")
    parser.add_argument("--only", nargs="*", choices=sorted(MODELS), help="models to write; default all, and the tensors")
    a = parser.parse_args()
    if a.only is None:
        write_tensors(os.path.join(a.out, "quant", "testdata", "bitsandbytes.safetensors"))
    for name in a.only or MODELS:
        write_model(name, os.path.join(a.out, "testdata", "quant"))


if __name__ == "__main__":
    sys.exit(main())
