"""Write what diffusers and PEFT make of other small transformers than scripts/dit_goldens.py, to testdata/dit/more.

Variants of Qwen-Image 2.1 (controls in the text; one modulation for all tokens), FLUX.2 (references, no guidance) and
Kandinsky 5 (frames, a mask of where they are known, stretched positions, in float32 where diffusers rounds to bfloat16);
and NAME-all-linear: three steps of LoRA on all linear layers of the transformers of the fixtures.
Run from the root of the module.
"""
import importlib.util
import json
import math
import pathlib
import sys

import safetensors.torch
import torch
from diffusers import Flux2Transformer2DModel, QwenImage21Transformer2DModel, ZImageTransformer2DModel
from peft import LoraConfig, inject_adapter_in_model

folder = pathlib.Path("testdata/dit")
torch.manual_seed(5)
torch.set_num_threads(1)


def kandinsky():
    """Kandinsky5Transformer3DModel without its casts of queries and keys."""
    spec = importlib.util.find_spec("diffusers.models.transformers.transformer_kandinsky")
    module = importlib.util.module_from_spec(spec)
    sys.modules["diffusers.models.transformers.kandinsky_float32"] = module
    source = pathlib.Path(spec.origin).read_text().replace(".to(torch.bfloat16)", "")
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module.Kandinsky5Transformer3DModel


def filled(model):
    """Random weights of such sizes that all of them matter."""
    for name, p in model.named_parameters():
        if p.ndim > 1:
            p.data = torch.randn_like(p) / math.sqrt(p.shape[-1])
        elif "norm" in name and name.endswith("weight"):
            p.data = (0 if "text_norm" in name else 1) + 0.2 * torch.randn_like(p)
        else:
            p.data = 0.1 * torch.randn_like(p)
    return model.eval()


def save(name, tensors, inputs=None, model=None):
    path = folder / "more" / name
    path.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file({k: v.detach().contiguous() for k, v in tensors.items()}, path / "golden.safetensors")
    if inputs is not None:
        (path / "inputs.json").write_text(json.dumps(inputs))
    if model is not None:
        model.save_pretrained(path / "transformer")


def noised(x, noise, time):
    sigma = (time / 1000).view(-1, *[1] * (x.ndim - 1))
    return (1 - sigma) * x + sigma * noise


def qwenimage21(name, causal):
    model = filled(QwenImage21Transformer2DModel(
        in_channels=6, out_channels=None, num_layers=2, attention_head_dim=12, num_attention_heads=3, context_in_dim=10, mlp_ratio=2,
        axes_dims_rope=(2, 4, 6), eps=1e-5, causal_condition=causal,
    ))
    shapes, slots = [(1, 4, 6), (1, 2, 2), (1, 6, 4)], [0, 0] + [1] * 7 + [0, 0, 0]
    *controls, latents = [torch.randn(2, h * w, 6) for _, h, w in shapes]
    noise, time, text = torch.randn_like(latents), torch.tensor([830.0, 120.0]), torch.randn(2, len(slots), 10)
    mask = torch.ones(2, len(slots), dtype=torch.long)
    mask[1, -2:] = 0
    image = torch.tensor(slots + [1] * 6).bool()[None].repeat(2, 1)
    output = model(torch.cat([*controls, noised(latents, noise, time)], 1), text, time / 1000, [shapes] * 2, image, mask.bool()).sample
    save(name, {
        "control.0": controls[0], "control.1": controls[1], "latents": latents, "noise": noise, "timestep": time, "slots": torch.tensor(slots),
        "encoder_hidden_states": text, "encoder_hidden_states_mask": mask, "output": output[:, -latents.shape[1]:],
    }, {"img_shapes": [shapes[2:]] * 2, "controls": shapes[:2]}, model)


def flux2():
    model = filled(Flux2Transformer2DModel(
        in_channels=6, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=1, joint_attention_dim=10,
        timestep_guidance_channels=32, mlp_ratio=2.5, axes_dims_rope=(2, 4, 6, 4), rope_theta=500, guidance_embeds=False, eps=1e-5,
    ))
    sizes = [(3, 5), (2, 4), (4, 3)]
    latents, *controls = [torch.randn(2, 6, h, w) for h, w in sizes]
    noise, time, text = torch.randn_like(latents), torch.tensor([700.0, 55.0]), torch.randn(2, 9, 10)
    ids = torch.tensor([[10 * n, y, x, 0] for n, (h, w) in enumerate(sizes) for y in range(h) for x in range(w)])
    tokens = torch.cat([x.flatten(2).transpose(1, 2) for x in [noised(latents, noise, time), *controls]], 1)
    output = model(tokens, text, time / 1000, ids, torch.tensor([[0, 0, 0, i] for i in range(9)])).sample[:, :15]
    save("flux2-references", {
        "latents": latents, "control.0": controls[0], "control.1": controls[1], "noise": noise, "timestep": time, "encoder_hidden_states": text,
        "output": output,
    }, model=model)


def kandinsky5(Kandinsky):
    model = filled(Kandinsky(
        in_visual_dim=3, in_text_dim=10, in_text_dim2=6, time_dim=24, out_visual_dim=3, patch_size=(2, 2, 1), model_dim=24, ff_dim=40,
        num_text_blocks=1, num_visual_blocks=2, axes_dims=(2, 4, 6), visual_cond=True,
    ))
    latents, control = torch.randn(2, 4, 6, 5, 3), torch.randn(2, 4, 6, 5, 3)
    noise, time, mask = torch.randn_like(latents), torch.tensor([900.0, 300.0]), torch.zeros(2, 4, 6, 5, 1)
    mask[:, 0] = 1
    text, pooled, stretch = torch.randn(2, 5, 10), torch.randn(2, 6), [1.0, 2.0, 3.16]
    places = [torch.arange(2), torch.arange(3), torch.arange(5)]
    output = model(torch.cat([noised(latents, noise, time), control, mask], -1), text, time, pooled, places, torch.arange(5), stretch).sample
    save("kandinsky5-frames", {
        "latents": latents, "noise": noise, "timestep": time, "encoder_hidden_states": text, "pooled_projections": pooled,
        "control": torch.cat([control, mask], -1), "output_f32": output,
    }, {"scale_factor": stretch}, model)


def all_linear(name, kind, loss):
    """Three steps on all linear layers, from factors that are sines."""
    model = kind.from_pretrained(folder / name / "transformer")
    g = safetensors.torch.load_file(folder / name / "golden.safetensors")
    names = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    model = inject_adapter_in_model(LoraConfig(r=2, lora_alpha=4, target_modules=names), model)
    factors = {n: p for n, p in model.named_parameters() if "lora_" in n}
    for p in factors.values():
        p.data = (0.1 * torch.sin(torch.arange(p.numel(), dtype=torch.float64).view(p.shape))).float()
    optimizer, losses = torch.optim.AdamW(factors.values(), lr=1e-3, weight_decay=0.1), []
    for _ in range(3):
        losses.append(loss(model, g))
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    save(name + "-all-linear", {"losses": torch.stack(losses), **{"base_model.model." + n.replace(".default", ""): p for n, p in factors.items()}})


def flux2_loss(model, g):
    v = model(g["hidden_states"], g["encoder_hidden_states"], g["timestep"] / 1000, g["img_ids"], g["txt_ids"], g["guidance"]).sample
    return ((v - g["target"]) ** 2).mean()


def zimage_loss(model, g):
    x = [noised(g[f"latents.{i}"][None], g[f"noise.{i}"][None], g["timestep"][i:i + 1]).transpose(0, 1) for i in range(2)]
    v = model(x, (1000 - g["timestep"]) / 1000, [g["cap_feats.0"], g["cap_feats.1"]]).sample
    return ((-torch.stack([x.flatten() for x in v]) - g["target"]) ** 2).mean()


def qwenimage21_loss(model, g):
    v = model(
        g["hidden_states"], g["encoder_hidden_states"], g["timestep"] / 1000, [[(1, 4, 4)]] * 2, g["img_mask"].bool(),
        g["encoder_hidden_states_mask"].bool(),
    ).sample[:, -16:]
    return ((v - g["target"]) ** 2).mean()


def kandinsky5_loss(model, g):
    places = [torch.arange(1), torch.arange(4), torch.arange(3)]
    v = model(g["hidden_states"], g["encoder_hidden_states"], g["timestep"], g["pooled_projections"], places, torch.arange(7)).sample
    return ((v - g["target"]) ** 2).mean()


if __name__ == "__main__":
    Kandinsky = kandinsky()
    with torch.no_grad():
        qwenimage21("qwen21-controls", True)
        qwenimage21("qwen21-uniform", False)
        flux2()
        kandinsky5(Kandinsky)
    all_linear("flux2", Flux2Transformer2DModel, flux2_loss)
    all_linear("zimage", ZImageTransformer2DModel, zimage_loss)
    all_linear("qwenimage21", QwenImage21Transformer2DModel, qwenimage21_loss)
    all_linear("kandinsky5", Kandinsky, kandinsky5_loss)
