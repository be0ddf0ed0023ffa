#!/usr/bin/env python3
"""Check that diffusers and lorafuse read each other's LoRA adapters with the same strength.

diffusers makes an adapter with lora_alpha = 2r, saves it, and computes the transformer's output with it.
lorafuse rewrites the file in each of its forms; diffusers loads each into a model that has none, and the
output must be the same (1e-5 of the largest). With --write the adapter and the output are kept as goldens:
go test ./internal/diffusion/dit -run TestAdaptersOfDiffusers computes the same output from diffusers' file.

  make build
  python scripts/check_diffusers_adapter.py --lorafuse bin/lorafuse
  python scripts/check_diffusers_adapter.py --lorafuse bin/lorafuse --write

Needs torch, diffusers and peft. Nothing is downloaded.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, Flux2KleinPipeline, Flux2Transformer2DModel, FluxPipeline
from diffusers import FluxTransformer2DModel, QwenImagePipeline, QwenImageTransformer2DModel, ZImagePipeline, ZImageTransformer2DModel
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file, save_file

RANK = 2


def flux_pipeline(transformer):
    return FluxPipeline(FlowMatchEulerDiscreteScheduler(), None, None, None, None, None, transformer)


def qwen_pipeline(transformer):
    return QwenImagePipeline(FlowMatchEulerDiscreteScheduler(), None, None, None, transformer)


def flux2_pipeline(transformer):
    return Flux2KleinPipeline(FlowMatchEulerDiscreteScheduler(), None, None, None, transformer)


def zimage_pipeline(transformer):
    return ZImagePipeline(FlowMatchEulerDiscreteScheduler(), None, None, None, transformer)


def flux_output(transformer, g):
    return transformer(
        hidden_states=g["hidden_states"], timestep=g["timestep"], guidance=g["guidance"],
        pooled_projections=g["pooled_projections"], encoder_hidden_states=g["encoder_hidden_states"],
        txt_ids=g["txt_ids"], img_ids=g["img_ids"], return_dict=False)[0]


def qwen_output(transformer, g):
    batch, _, height, width = g["latents"].shape
    return transformer(
        hidden_states=g["hidden_states"], timestep=g["timestep"], encoder_hidden_states=g["encoder_hidden_states"],
        encoder_hidden_states_mask=g["encoder_hidden_states_mask"],
        img_shapes=[[(1, height // 2, width // 2)]] * batch, return_dict=False)[0]


def flux2_output(transformer, g):
    return transformer(
        hidden_states=g["hidden_states"], timestep=g["timestep"], guidance=g["guidance"],
        encoder_hidden_states=g["encoder_hidden_states"], txt_ids=g["txt_ids"], img_ids=g["img_ids"], return_dict=False)[0]


def zimage_output(transformer, g):
    latents = [g[f"latents.{i}"].unsqueeze(1) for i in range(2)]
    texts = [g[f"cap_feats.{i}"] for i in range(2)]
    return torch.stack(transformer(latents, g["timestep"], texts, return_dict=False)[0])


# Checks: targets of the adapter, and the formats in which diffusers loads it; lorafuse must refuse the others in
# REFUSED. diffusers reads kohya's names of FLUX single blocks only for layers of FLUX's real sizes.
ATTENTION = r"^transformer_blocks\.\d+\.(attn\.(to_[qkv]|to_out\.0|add_[qkv]_proj|to_add_out)|ff\.net\.0\.proj)$"
CASES = [
    ("flux", FluxTransformer2DModel, flux_pipeline, flux_output,
     ["to_q", "to_v", "to_out.0", "ff.net.2", "norm1.linear", "single_transformer_blocks.0.proj_out", "proj_mlp"], ["diffusers"]),
    ("flux", FluxTransformer2DModel, flux_pipeline, flux_output, ATTENTION, ["diffusers", "kohya", "comfyui"]),
    ("qwenimage", QwenImageTransformer2DModel, qwen_pipeline, qwen_output,
     ["to_k", "to_q", "to_v", "to_out.0", "add_q_proj", "to_add_out", "img_mlp.net.0.proj", "txt_mlp.net.2", "img_mod.1"],
     ["diffusers", "kohya", "comfyui"]),
    ("flux2", Flux2Transformer2DModel, flux2_pipeline, flux2_output,
     ["to_q", "to_k", "to_v", "to_add_out", "add_q_proj", "ff.linear_in", "to_qkv_mlp_proj", "single_transformer_blocks.0.attn.to_out", "x_embedder"],
     ["diffusers", "kohya", "comfyui"]),
    ("zimage", ZImageTransformer2DModel, zimage_pipeline, zimage_output,
     ["to_q", "to_v", "to_out.0", "w2", "layers.0.adaLN_modulation.0"], ["diffusers", "kohya", "comfyui"]),
    ("flux", FluxTransformer2DModel, flux_pipeline, flux_output, "all-linear", ["diffusers"]),
    ("flux2", Flux2Transformer2DModel, flux2_pipeline, flux2_output, "all-linear", ["diffusers"]),
    ("qwenimage", QwenImageTransformer2DModel, qwen_pipeline, qwen_output, "all-linear", ["diffusers", "kohya", "comfyui"]),
    ("zimage", ZImageTransformer2DModel, zimage_pipeline, zimage_output, "all-linear", ["diffusers", "kohya", "comfyui"]),
]
REFUSED = {5: ["kohya", "comfyui"], 6: ["kohya", "comfyui"]}


def make(transformer, targets):
    """Adds an adapter of twice the strength that its rank has."""
    generator = torch.Generator().manual_seed(7)
    if targets == "all-linear":
        targets = [name for name, module in transformer.named_modules() if isinstance(module, torch.nn.Linear)]
    transformer.add_adapter(LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets))
    for name, p in transformer.named_parameters():
        if "lora_" in name:
            p.data = torch.randn(p.shape, generator=generator) * 0.1


def scales(transformer):
    return sorted({s for m in transformer.modules() if hasattr(m, "scaling") for s in m.scaling.values()})


def check(a, number, case):
    name, cls, pipeline, output, targets, forms = case
    folder = os.path.join(a.fixtures, name)
    golden = load_file(os.path.join(folder, "golden.safetensors"))

    def fresh():
        return cls.from_pretrained(os.path.join(folder, "transformer"), torch_dtype=torch.float32)

    ok = True
    with torch.no_grad(), tempfile.TemporaryDirectory() as tmp:
        model = fresh()
        plain = output(model, golden)
        make(model, targets)
        want = output(model, golden)
        theirs = os.path.join(tmp, "theirs")
        pipeline(model).save_lora_weights(
            theirs, transformer_lora_layers=get_peft_model_state_dict(model),
            transformer_lora_adapter_metadata=model.peft_config["default"].to_dict())
        if a.write:
            keep = os.path.join(a.fixtures, "adapters", f"{name}-{number}")
            pipeline(model).save_lora_weights(
                keep, transformer_lora_layers=get_peft_model_state_dict(model),
                transformer_lora_adapter_metadata=model.peft_config["default"].to_dict())
            save_file({"output": want}, os.path.join(keep, "output.safetensors"))
        for form in REFUSED.get(number, []):
            run = subprocess.run([a.lorafuse, "adapter", "convert", theirs, os.path.join(tmp, "refused.safetensors"), "--model",
                                  os.path.join(folder, "transformer"), "--to", form], capture_output=True, text=True)
            refused = run.returncode != 0 and "diffusers would not load" in run.stderr
            ok = ok and refused
            print(f"{name}-{number} {form:9}: {'refused, ok' if refused else 'WRITTEN, WRONG'}")
        for form in forms:
            ours = os.path.join(tmp, form + ".safetensors")
            subprocess.run([a.lorafuse, "adapter", "convert", theirs, ours, "--model", os.path.join(folder, "transformer"), "--to", form],
                           check=True, stdout=subprocess.DEVNULL)
            again = fresh()
            pipeline(again).load_lora_weights(ours)
            got = output(again, golden)
            off = ((got - want).abs().max() / want.abs().max()).item()
            effect = ((want - plain).abs().max() / want.abs().max()).item()
            good = off <= 1e-5 and effect > 1e-2
            ok = ok and good
            print(f"{name}-{number} {form:9}: off by {off:.1e} of the largest; the adapter changes {effect:.2f} of it; "
                  f"scales {scales(again)} {'ok' if good else 'WRONG'}")
    return ok


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--lorafuse", required=True, help="the program")
    p.add_argument("--fixtures", default="testdata/dit", help="folder with flux and qwenimage")
    p.add_argument("--write", action="store_true", help="keep the adapters and outputs as goldens")
    a = p.parse_args()
    results = [check(a, number, case) for number, case in enumerate(CASES)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
