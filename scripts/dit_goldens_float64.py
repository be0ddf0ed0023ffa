"""Repeat runs of LoRA of testdata/dit in float64, to judge ours and the recorded ones of float32 by: TestMoreTraces.

Timestep sinusoids follow diffusers, whose float32 arithmetic is part of the models, but each operation is rounded to
nearest: torch's float32 exponential depends on the processor. Writes NAME/train/float64.safetensors:
the losses of the run and the gradients of its second step. Run from the root of the module.
"""
import json
import math
import sys

import safetensors.torch
import torch
from diffusers import Flux2Transformer2DModel, ZImageTransformer2DModel
from peft import LoraConfig, inject_adapter_in_model

sys.path.insert(0, "scripts")
import dit_goldens_more as more

exp = torch.exp
torch.exp = lambda x: exp(x.double()).to(x.dtype)


def in_float64(model):
    """The model in float64, apart from the sinusoids that it makes of timesteps."""
    model = model.double()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda m, args: (args[0].to(m.weight.dtype), *args[1:]))
    return model


def golden_in_float64(name):
    """The inputs and targets of a model in float64, apart from its timesteps."""
    golden = safetensors.torch.load_file(more.folder / name / "golden.safetensors")
    return {k: v.double() if v.is_floating_point() and k != "timestep" else v for k, v in golden.items()}


def repeat(name, kind, loss):
    path = more.folder / name / "train"
    recorded = json.loads((path / "trace.json").read_text())
    h = recorded["hyperparameters"]
    model = kind.from_pretrained(more.folder / name / "transformer")
    init = safetensors.torch.load_file(path / "init.safetensors")
    targets = sorted({k.removeprefix("transformer.").removesuffix(".lora_A.weight") for k in init if k.endswith("lora_A.weight")})
    model = inject_adapter_in_model(LoraConfig(r=h["rank"], lora_alpha=h["lora_alpha"], target_modules=targets), model)
    factors = {"transformer." + n.replace(".default", ""): p for n, p in model.named_parameters() if "lora_" in n}
    in_float64(model)
    for n, p in factors.items():
        p.data = init[n].double()
    g = golden_in_float64(name)
    optimizer = torch.optim.AdamW(factors.values(), lr=h["lr"], betas=h["betas"], eps=h["eps"], weight_decay=h["weight_decay"])
    losses, out = [], {}
    for step in recorded["trace"]:
        optimizer.zero_grad()
        value = loss(model, g)
        value.backward()
        if step["step"] == 1:
            out = {n: p.grad.float().contiguous() for n, p in factors.items()}
        torch.nn.utils.clip_grad_norm_(factors.values(), h["max_grad_norm"])
        optimizer.step()
        losses.append(value.item())
        print(name, step["step"], step["loss"], losses[-1])
    old = safetensors.torch.load_file(path / "grads_step1.safetensors")
    print(name, "gradients differ by", max(((old[n] - out[n]).abs().max() / out[n].abs().max()).item() for n in out))
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    safetensors.torch.save_file(out, path / "float64.safetensors")


if __name__ == "__main__":
    repeat("flux2", Flux2Transformer2DModel, more.flux2_loss)
    repeat("zimage", ZImageTransformer2DModel, more.zimage_loss)
