"""Write testdata/dit/qwenimage-layered: a small Qwen-Image of layers with random weights, and what diffusers makes of it.

Layers are frames of the latents; the picture that they are made from is a control. Run from the root of the module.
"""
import pathlib

import safetensors.torch
import torch
from diffusers import QwenImageTransformer2DModel

folder = pathlib.Path("testdata/dit/qwenimage-layered")
torch.manual_seed(7)
model = QwenImageTransformer2DModel(
    patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=24,
    axes_dims_rope=(4, 6, 6), use_layer3d_rope=True, use_additional_t_cond=True,
)
for p in model.parameters():
    torch.nn.init.normal_(p, std=0.1 if p.dim() > 1 else 0.3)
model = model.bfloat16().float()  # values that half the bytes hold


def packed(x):
    batch, frames, channels, height, width = x.shape
    x = x.view(batch, frames, channels, height // 2, 2, width // 2, 2).permute(0, 1, 3, 5, 2, 4, 6)
    return x.reshape(batch, frames * (height // 2) * (width // 2), channels * 4)


latents, control = torch.randn(2, 3, 4, 4, 6), torch.randn(2, 1, 4, 6, 2)
text, mask = torch.randn(2, 5, 24), torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])
time = torch.tensor([700.0, 90.0])
tokens = packed(latents)
with torch.no_grad():
    output = model(
        torch.cat([tokens, packed(control)], 1), encoder_hidden_states=text, encoder_hidden_states_mask=mask, timestep=time / 1000,
        img_shapes=[[(1, 2, 3)] * 3 + [(1, 3, 1)]] * 2, additional_t_cond=torch.zeros(2, dtype=torch.long),
    ).sample[:, : tokens.shape[1]]
model.bfloat16().save_pretrained(folder / "transformer")
safetensors.torch.save_file(
    {
        "latents": latents.transpose(1, 2).contiguous(), "control": control.transpose(1, 2).contiguous(), "text": text, "mask": mask,
        "timestep": time, "output": output.contiguous(),
    },
    folder / "golden.safetensors",
)
