"""Write results of diffusers and PEFT for small transformers, in addition to the fixtures of
testdata/dit.

qwenimage-layered: layers are frames of the latents; the picture that they are made from is a control.
kontext: the transformer of flux with a control. all-linear: three steps of LoRA on all linear layers of qwenimage.
Run from the root of the module.
"""
import pathlib

import safetensors.torch
import torch
from diffusers import FluxTransformer2DModel, QwenImageTransformer2DModel
from peft import LoraConfig

folder = pathlib.Path("testdata/dit")


def packed(x):
    """Tokens of latents [batch, frames, channels, height, width]."""
    batch, frames, channels, height, width = x.shape
    x = x.view(batch, frames, channels, height // 2, 2, width // 2, 2).permute(0, 1, 3, 5, 2, 4, 6)
    return x.reshape(batch, frames * (height // 2) * (width // 2), channels * 4)


def save(name, **tensors):
    path = folder / name / "golden.safetensors"
    path.parent.mkdir(exist_ok=True)
    safetensors.torch.save_file({k: v.detach().contiguous() for k, v in tensors.items()}, path)


def layered():
    torch.manual_seed(7)
    model = QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=24,
        axes_dims_rope=(4, 6, 6), use_layer3d_rope=True, use_additional_t_cond=True,
    )
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.1 if p.dim() > 1 else 0.3)
    model = model.bfloat16().float()  # values that bfloat16 represents exactly
    latents, control = torch.randn(2, 3, 4, 4, 6), torch.randn(2, 1, 4, 6, 2)
    text, mask = torch.randn(2, 5, 24), torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])
    time = torch.tensor([700.0, 90.0])
    tokens = packed(latents)
    with torch.no_grad():
        output = model(
            torch.cat([tokens, packed(control)], 1), encoder_hidden_states=text, encoder_hidden_states_mask=mask, timestep=time / 1000,
            img_shapes=[[(1, 2, 3)] * 3 + [(1, 3, 1)]] * 2, additional_t_cond=torch.zeros(2, dtype=torch.long),
        ).sample[:, : tokens.shape[1]]
    model.bfloat16().save_pretrained(folder / "qwenimage-layered" / "transformer")
    save("qwenimage-layered", latents=latents.transpose(1, 2), control=control.transpose(1, 2), text=text, mask=mask, timestep=time, output=output)


def kontext():
    torch.manual_seed(8)
    model = FluxTransformer2DModel.from_pretrained(folder / "flux" / "transformer")
    latents, control = torch.randn(2, 1, 4, 4, 6), torch.randn(2, 1, 4, 8, 2)
    text, pooled, time, guidance = torch.randn(2, 5, 32), torch.randn(2, 24), torch.tensor([500.0, 90.0]), torch.tensor([2.5, 3.5])
    ids = [[n, y, x] for n, (h, w) in enumerate([(2, 3), (4, 1)]) for y in range(h) for x in range(w)]
    tokens = packed(latents)
    output = model(
        torch.cat([tokens, packed(control)], 1), encoder_hidden_states=text, pooled_projections=pooled, timestep=time / 1000,
        img_ids=torch.tensor(ids).float(), txt_ids=torch.zeros(5, 3), guidance=guidance,
    ).sample[:, : tokens.shape[1]]
    save("kontext", latents=latents.transpose(1, 2), control=control.transpose(1, 2), text=text, pooled=pooled, timestep=time, guidance=guidance, output=output)


def all_linear():
    model = QwenImageTransformer2DModel.from_pretrained(folder / "qwenimage" / "transformer")
    g = safetensors.torch.load_file(folder / "qwenimage" / "golden.safetensors")
    names = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    model.add_adapter(LoraConfig(r=2, lora_alpha=4, target_modules=names))
    factors = {n: p for n, p in model.named_parameters() if "lora_" in n}
    for p in factors.values():
        numbers = torch.arange(p.numel(), dtype=torch.float64).view(p.shape)
        p.data = (0.1 * torch.sin(numbers)).float()
    optimizer = torch.optim.AdamW(factors.values(), lr=1e-3, weight_decay=0.1)
    losses = []
    for _ in range(3):
        output = model(
            g["hidden_states"], encoder_hidden_states=g["encoder_hidden_states"], encoder_hidden_states_mask=g["encoder_hidden_states_mask"],
            timestep=g["timestep"], img_shapes=[[(1, 4, 4)]] * 2,
        ).sample
        loss = ((output - g["target"]) ** 2).mean()
        loss.backward()
        losses.append(loss)
        optimizer.step()
        optimizer.zero_grad()
    save("all-linear", losses=torch.stack(losses), **{"base_model.model." + n.replace(".default", ""): p for n, p in factors.items()})


layered()
kontext()
all_linear()
