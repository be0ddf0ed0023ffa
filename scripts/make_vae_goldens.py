#!/usr/bin/env python3
"""Write tiny random autoencoders as diffusers saves them, with its encodings of pictures and decodings of
latents.

Every case is a folder with config.json, weights (bfloat16 where the case says so; computing is in float32) and
golden.safetensors: `image` [B,C,H,W] with its `mean` and `logvar`, `latents` with the `decoded` pictures, `normalised`, the
latents as a pipeline hands them to a transformer, and where the case has tiles `tiled.logvar`, `tiled.mean` and `tiled.decoded`.
The same command gives the same bytes.

  python scripts/make_vae_goldens.py --out internal/diffusion/vae/testdata

With --rounding, it writes to rounding.json how far autocast to bfloat16 is from float64 in each folder with a
golden.safetensors: root mean squares of differences, relative to the root mean squares of the exact values.

  python scripts/make_vae_goldens.py --out internal/diffusion/vae/testdata --rounding internal/diffusion/vae/testdata/* testdata/dit/vae-*
"""
import argparse
import json
import os

import diffusers
import torch
from diffusers import AutoencoderKL, AutoencoderKLFlux2, AutoencoderKLQwenImage, Flux2Pipeline
from safetensors.torch import load_file, save_file


def levels(n, **more):
    return {"down_block_types": ["DownEncoderBlock2D"] * n, "up_block_types": ["UpDecoderBlock2D"] * n, **more}


# name: (class, configuration, dtype of the weights, height and width of the image, side of a tile)
CASES = {
    "kl-bf16": (AutoencoderKL, levels(3, block_out_channels=[4, 8, 12], layers_per_block=2, norm_num_groups=4, latent_channels=3), torch.bfloat16, (24, 40), 0),
    "kl-plain": (AutoencoderKL, levels(1, block_out_channels=[6], norm_num_groups=2, latent_channels=2, in_channels=2, out_channels=2, use_quant_conv=False, use_post_quant_conv=False,
                                       mid_block_add_attention=False, act_fn="swish", latents_mean=[0.5, -1.5], latents_std=[2.0, 0.75], scaling_factor=1.25), torch.float32, (5, 7), 0),
    "kl-tiles": (AutoencoderKL, levels(2, block_out_channels=[4, 8], norm_num_groups=2, latent_channels=4, sample_size=32, shift_factor=0.1159, scaling_factor=0.3611), torch.float32, (44, 60), 32),
    "flux2": (AutoencoderKLFlux2, levels(3, block_out_channels=[8, 8, 12], decoder_block_out_channels=[4, 8, 16], layers_per_block=1, norm_num_groups=4, latent_channels=5), torch.float16, (32, 24), 0),
    "qwen-bf16": (AutoencoderKLQwenImage, dict(base_dim=4, z_dim=3, dim_mult=[1, 3, 2], num_res_blocks=2, temperal_downsample=[True, False], input_channels=4,
                                               latents_mean=[0.1, -0.2, 0.3], latents_std=[1.5, 2.5, 0.5]), torch.bfloat16, (20, 28), 0),
    "qwen-tiles": (AutoencoderKLQwenImage, dict(base_dim=3, z_dim=2, dim_mult=[1, 2], num_res_blocks=1, temperal_downsample=[True], latents_mean=[0.0, 1.0], latents_std=[1.0, 2.0]), torch.float32, (36, 60), 32),
}


def fill(model, dtype, generator):
    """Random weights, scaled to keep values around one, rounded to the stored type."""
    for name, p in list(model.named_parameters()) + list(model.named_buffers()):
        if not p.is_floating_point():
            continue
        x = torch.randn(p.shape, generator=generator)
        if "running_var" in name:
            x = 0.5 + x * x
        elif name.endswith("gamma") or "norm" in name and name.endswith("weight"):
            x = 1 + 0.2 * x
        elif p.ndim > 1:
            x = x * (1.2 / p[0].numel() ** 0.5) * (3**0.5 if p.ndim == 5 and p.shape[2] == 3 else 1)
        else:
            x = 0.3 * x
        p.data.copy_(x.to(dtype).float())


def normalised(model, z):
    """Latents [B,C,H,W] as pipelines scale them."""
    c = model.config
    if isinstance(model, AutoencoderKLFlux2):
        p = Flux2Pipeline._patchify_latents(z)
        p = (p - model.bn.running_mean.view(1, -1, 1, 1)) / torch.sqrt(model.bn.running_var.view(1, -1, 1, 1) + c.batch_norm_eps)
        return Flux2Pipeline._unpatchify_latents(p)
    if c.get("latents_mean") is not None:
        mean, std = torch.tensor(c.latents_mean).view(1, -1, 1, 1), torch.tensor(c.latents_std).view(1, -1, 1, 1)
        return (z - mean) * c.get("scaling_factor", 1) / std
    return (z - (c.get("shift_factor") or 0)) * c.scaling_factor


@torch.no_grad()
def case(name, folder):
    cls, config, dtype, (height, width), tile = CASES[name]
    generator = torch.Generator().manual_seed(len(name) + height)
    model = cls(**config).eval()
    fill(model, dtype, generator)
    model.save_pretrained(folder)
    stored = os.path.join(folder, "diffusion_pytorch_model.safetensors")
    save_file({k: v.to(dtype) if v.is_floating_point() else v for k, v in load_file(stored).items()}, stored)
    film = cls is AutoencoderKLQwenImage
    frames = (lambda x: x.unsqueeze(2)) if film else (lambda x: x)
    picture = (lambda x: x.squeeze(2)) if film else (lambda x: x)
    image = torch.rand((1 if tile else 2, config.get("in_channels", config.get("input_channels", 3)), height, width), generator=generator) * 2 - 1
    moments = model.encode(frames(image)).latent_dist
    latents = torch.randn(picture(moments.mean).shape, generator=generator)
    out = {"image": image, "mean": picture(moments.mean), "logvar": picture(moments.logvar), "latents": latents,
           "decoded": picture(model.decode(frames(latents)).sample), "normalised": normalised(model, latents)}
    if tile:
        if film:
            model.enable_tiling(tile, tile, tile * 3 // 4, tile * 3 // 4)
        else:
            model.enable_tiling()
        moments = model.encode(frames(image)).latent_dist
        out |= {"tiled.mean": picture(moments.mean), "tiled.logvar": picture(moments.logvar), "tiled.decoded": picture(model.decode(frames(latents)).sample).clamp(-1 if film else None, 1 if film else 1e9)}
    save_file({k: v.contiguous() for k, v in out.items()}, os.path.join(folder, "golden.safetensors"))
    print(name, {k: (list(v.shape), round(v.abs().max().item(), 3)) for k, v in out.items()})


def rms(x):
    return float(x.double().pow(2).mean().sqrt())


@torch.no_grad()
def rounding(folder):
    """{result: relative error under autocast} of the pictures and latents of a golden."""
    golden = load_file(os.path.join(folder, "golden.safetensors"))
    model = os.path.join(folder, "vae") if os.path.isdir(os.path.join(folder, "vae")) else folder
    with open(os.path.join(model, "config.json")) as f:
        cls = getattr(diffusers, json.load(f)["_class_name"])
    frames = lambda x: x.unsqueeze(2) if cls is AutoencoderKLQwenImage and x.ndim == 4 else x

    def results(dtype, autocast):
        vae = cls.from_pretrained(model, torch_dtype=dtype).eval()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            moments = vae.encode(frames(golden["image"].to(dtype))).latent_dist
            return {"mean": moments.mean, "logvar": moments.logvar, "decoded": vae.decode(frames(golden["latents"].to(dtype))).sample}

    exact, rounded = results(torch.float64, False), results(torch.float32, True)
    return {name: float(f"{rms(rounded[name] - want) / rms(want):.4g}") for name, want in exact.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", action="append")
    parser.add_argument("--rounding", nargs="+", metavar="FOLDER", help="write rounding.json for these folders, and nothing else")
    args = parser.parse_args()
    if args.rounding:
        torch.set_num_threads(1)
        found = {os.path.basename(folder): rounding(folder) for folder in args.rounding if os.path.isdir(folder)}
        with open(os.path.join(args.out, "rounding.json"), "w") as f:
            f.write(json.dumps(found, indent=1) + "\n")
        raise SystemExit
    for name in args.only or CASES:
        case(name, os.path.join(args.out, name))
