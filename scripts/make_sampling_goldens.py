"""Write what the pipelines of diffusers draw with the small transformers of testdata/dit, to testdata/dit/sampling.

cases.json says what was asked for; golden.safetensors has for each case the prompts as their encoders would have given them,
`start`, `latents.N` after each step, `timestep.N`, the `control.N` that it was made from, and the `image` of 0 to 1. Latents
are [channels, height, width] as the pipeline unpacks them, normalised. Kandinsky is without its casts to bfloat16. The
autoencoder of Qwen-Image 2.1 is a stand-in that has no pictures.
Run from the root of the module: python scripts/make_sampling_goldens.py
"""
import json
import pathlib
import types

import numpy
import PIL.Image
import safetensors.torch
import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLFlux2,
    AutoencoderKLQwenImage,
    FlowMatchEulerDiscreteScheduler,
    Flux2KleinPipeline,
    Flux2Pipeline,
    Flux2Transformer2DModel,
    FluxKontextPipeline,
    FluxPipeline,
    FluxTransformer2DModel,
    Kandinsky5T2IPipeline,
    QwenImage21Pipeline,
    QwenImage21Transformer2DModel,
    QwenImageEditPlusPipeline,
    QwenImageTransformer2DModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus

from dit_goldens_more import filled, kandinsky

folder = pathlib.Path("testdata/dit")
out = folder / "sampling"
tensors, cases = {}, {}

FLUX = dict(use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15, base_image_seq_len=256, max_image_seq_len=4096, shift=3.0)
QWEN = dict(use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, base_image_seq_len=256, max_image_seq_len=8192, shift_terminal=0.02)


def exponential(x, exp=torch.exp):
    """Rounds to the nearest number: the last bit of torch's float32 exponential depends on the processor."""
    return exp(x.double()).to(x.dtype)


def transformer(kind, name):
    return kind.from_pretrained(folder / name / "transformer", torch_dtype=torch.float32).eval()


def text(tokens, features):
    return torch.randn(1, tokens, features)


def picture(width, height):
    return PIL.Image.fromarray(numpy.random.default_rng(width + height).integers(0, 255, (height, width, 3), numpy.uint8))


def unpacked(tokens, height, width):
    """[channels, height, width] of tokens of squares of 2 by 2."""
    x = tokens[0].view(height // 2, width // 2, -1, 2, 2)
    return x.permute(2, 0, 3, 1, 4).reshape(-1, height, width)


def packed(x):
    _, height, width = x.shape
    return x.view(-1, height // 2, 2, width // 2, 2).permute(1, 3, 0, 2, 4).reshape(1, height // 2 * (width // 2), -1)


def plain(tokens, height, width):
    return tokens[0].T.reshape(-1, height, width)


def controls(pipe, unpack=lambda x: x[0]):
    """Intermediate results of the pipeline for its input pictures."""
    seen, encode = [], pipe._encode_vae_image

    def watched(*args, **kwargs):
        x = encode(*args, **kwargs)
        seen.append(unpack(x))
        return x

    pipe._encode_vae_image = watched
    return seen


def draw(case, pipe, shape, unpack, prompts, start, seen=(), said={}, picture=True, **asked):
    """Runs a pipeline. said is written to cases.json, with the size of the latent and other values that
    the test needs."""
    levels, latents = [], []

    def each(pipe, i, t, kwargs):
        levels.append(t.reshape(1).float())
        latents.append(unpack(kwargs["latents"]))
        return {}

    r = pipe(callback_on_step_end=each, output_type="np", **asked)
    image = r.image if hasattr(r, "image") else r.images
    if picture:
        tensors[case + ".image"] = torch.from_numpy(numpy.asarray(image))[0].permute(2, 0, 1)
    for i, x in enumerate(latents):
        tensors[f"{case}.latents.{i}"], tensors[f"{case}.timestep.{i}"] = x, levels[i]
    for i, x in enumerate(seen):
        tensors[f"{case}.control.{i}"] = x
    tensors[case + ".start"] = start
    for name, x in prompts.items():
        tensors[f"{case}.{name}"] = x[0]
    config = pipe.scheduler.config
    scheduler = {k: v for k, v in config.items() if k[0] != "_" and k not in config["_use_default_values"]}
    cases[case] = {"height": shape[0], "width": shape[1], "steps": len(latents), "controls": len(seen), "scheduler": scheduler, **said}


def zimage():
    model = transformer(ZImageTransformer2DModel, "zimage")
    vae = AutoencoderKL.from_pretrained(folder / "vae-flux" / "vae")

    def case(name, shift, shape, steps, tokens, scale, **more):
        h, w = shape
        pipe = ZImagePipeline(FlowMatchEulerDiscreteScheduler(shift=shift), vae, None, None, model)
        pipe.set_progress_bar_config(disable=True)
        start, prompts = torch.randn(4, h, w), {"prompt": text(tokens, 20)}
        asked = dict(prompt_embeds=[prompts["prompt"][0]], guidance_scale=scale)
        if scale > 0:
            prompts["negative"] = text(tokens + 3, 20)
            asked["negative_prompt_embeds"] = [prompts["negative"][0]]
        draw(
            name, pipe, shape, lambda x: x[0], prompts, start, latents=start[None], height=2 * h, width=2 * w, num_inference_steps=steps,
            said={"transformer": "zimage", "vae": "vae-flux", "scale": scale, **{"cap": float(more.get("cfg_normalization", 0)), "until": more.get("cfg_truncation", 1)}},
            **asked, **more,
        )

    case("zimage", 3.0, (6, 10), 7, 7, 5.0)
    case("zimage-turbo", 3.0, (10, 4), 9, 40, 0.0)
    case("zimage-capped", 6.0, (4, 4), 4, 5, 4.0, cfg_normalization=True, cfg_truncation=0.1)


def flux2():
    torch.manual_seed(13)
    model = filled(Flux2Transformer2DModel(
        in_channels=20, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=18,
        timestep_guidance_channels=32, mlp_ratio=2.0, axes_dims_rope=(4, 4, 4, 4), guidance_embeds=False,
    )).bfloat16()
    model.save_pretrained(out / "flux2-klein" / "transformer")
    model = model.float()
    vae = AutoencoderKLFlux2.from_pretrained("internal/diffusion/vae/testdata/flux2", torch_dtype=torch.float32)

    def case(name, shape, steps, tokens, scale, distilled=False, sizes=()):
        h, w = shape
        pipe = Flux2KleinPipeline(FlowMatchEulerDiscreteScheduler(**FLUX), vae, None, None, model, is_distilled=distilled)
        pipe.set_progress_bar_config(disable=True)
        start, prompts = torch.randn(20, h, w), {"prompt": text(tokens, 18)}
        asked = dict(prompt_embeds=prompts["prompt"], guidance_scale=scale)
        if scale > 1 and not distilled:
            prompts["negative"] = text(tokens + 2, 18)
            asked["negative_prompt_embeds"] = prompts["negative"]
        if sizes:
            asked["image"] = [picture(*size) for size in sizes]
        draw(
            name, pipe, shape, lambda x: plain(x, h, w), prompts, start, controls(pipe), latents=start[None], height=8 * h, width=8 * w,
            num_inference_steps=steps, said={"transformer": "sampling/flux2-klein", "vae": "flux2", "scale": scale, "distilled": distilled}, **asked,
        )

    case("flux2-klein", (3, 5), 6, 9, 4.0)
    case("flux2-klein-distilled", (4, 2), 4, 33, 4.0, distilled=True)
    case("flux2-klein-edit", (2, 4), 3, 5, 2.5, sizes=[(64, 72), (80, 64)])

    small = AutoencoderKLFlux2(block_out_channels=[4, 4], down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, norm_num_groups=2, latent_channels=4)
    pipe = Flux2Pipeline(FlowMatchEulerDiscreteScheduler(**FLUX), small, None, None, transformer(Flux2Transformer2DModel, "flux2"))
    pipe.set_progress_bar_config(disable=True)
    start, prompt = torch.randn(16, 3, 4), text(8, 24)
    draw(
        "flux2-dev", pipe, (3, 4), lambda x: plain(x, 3, 4), {"prompt": prompt}, start, latents=start[None], height=12, width=16, num_inference_steps=4,
        said={"transformer": "flux2", "told": 2.5}, picture=False, prompt_embeds=prompt, guidance_scale=2.5,
    )


def kandinsky5():
    model = transformer(kandinsky(), "kandinsky5")
    vae = AutoencoderKL.from_pretrained(folder / "vae-flux" / "vae")

    def case(name, shift, shape, steps, tokens, scale):
        h, w = shape
        pipe = Kandinsky5T2IPipeline(model, vae, None, None, None, None, FlowMatchEulerDiscreteScheduler(shift=shift))
        pipe.set_progress_bar_config(disable=True)
        pipe.vae_scale_factor_spatial, pipe.resolutions = 2, [(2 * w, 2 * h)]
        start, prompts = torch.randn(4, h, w), {"prompt": text(tokens, 24), "pooled": torch.randn(1, 20)}
        asked = dict(prompt_embeds_qwen=prompts["prompt"], prompt_embeds_clip=prompts["pooled"], prompt_cu_seqlens=torch.tensor([0, tokens]))
        if scale > 1:
            prompts |= {"negative": text(tokens - 2, 24), "negative_pooled": torch.randn(1, 20)}
            asked |= dict(
                negative_prompt_embeds_qwen=prompts["negative"], negative_prompt_embeds_clip=prompts["negative_pooled"],
                negative_prompt_cu_seqlens=torch.tensor([0, tokens - 2]),
            )
        draw(
            name, pipe, shape, lambda x: x[0, 0].permute(2, 0, 1), prompts, start, latents=start.permute(1, 2, 0)[None, None], height=2 * h, width=2 * w,
            num_inference_steps=steps, guidance_scale=scale, said={"transformer": "kandinsky5", "vae": "vae-flux", "scale": scale}, **asked,
        )

    case("kandinsky5", 3.0, (4, 10), 5, 6, 3.5)
    case("kandinsky5-plain", 5.0, (8, 6), 4, 9, 1.0)


class Processor:
    """As much of one as QwenImage21Pipeline asks when it is made."""

    tokenizer = types.SimpleNamespace(encode=lambda text: [0])

    def apply_chat_template(self, *args, **kwargs):
        return [[0]]


class Blank(torch.nn.Module):
    """An autoencoder without pictures: encoding returns noise, and decoding returns nothing."""

    config = types.SimpleNamespace(z_dim=12, latents_mean=[0.1 * i for i in range(12)], latents_std=[1 + 0.1 * i for i in range(12)])
    dtype, device = torch.float32, torch.device("cpu")

    def encode(self, x):
        return types.SimpleNamespace(latents=torch.randn(1, 12, 1, x.shape[-2] // 16, x.shape[-1] // 16))

    def decode(self, x, return_dict):
        return (torch.zeros(1, 3, 1, 2, 2),)


def qwenimage21():
    model = transformer(QwenImage21Transformer2DModel, "qwenimage21")

    def case(name, shape, steps, slots, negative, scale, sigmas=None, sizes=(), **schedule):
        h, w = shape
        pipe = QwenImage21Pipeline(FlowMatchEulerDiscreteScheduler(**schedule), Blank(), None, Processor(), model, sample_sigmas=sigmas)
        pipe.set_progress_bar_config(disable=True)
        start, prompts = torch.randn(12, h, w), {"prompt": text(len(slots), 20)}
        masks = {"prompt": torch.tensor([slots]).bool()}
        if negative:
            prompts["negative"], masks["negative"] = text(len(negative), 20), torch.tensor([negative]).bool()
        pipe.encode_prompt = lambda prompt, **_: (prompts[prompt], None, masks[prompt])
        asked = dict(prompt="prompt", negative_prompt="negative" if negative else None, true_cfg_scale=scale)
        if sizes:
            asked["image"] = [picture(*size) for size in sizes]
        draw(
            name, pipe, shape, lambda x: plain(x, h, w), prompts | ({k + "_slots": x.long() for k, x in masks.items()} if sizes else {}), start,
            controls(pipe, lambda x: x[0, :, 0]), latents=start.flatten(1).T[None], height=16 * h, width=16 * w, num_inference_steps=steps, picture=False,
            output_resolution=64, said={"transformer": "qwenimage21", "scale": scale, "sigmas": sigmas}, **asked,
        )

    case("qwenimage21", (4, 6), 5, [0] * 7, None, 1.0, **QWEN)
    case("qwenimage21-guided", (6, 4), 4, [0] * 5, [0] * 9, 2.5, **FLUX)
    case("qwenimage21-sigmas", (2, 4), 9, [0] * 5, None, 1.0, sigmas=[1.0, 0.9, 0.5, 0.2], shift=2.0)
    edit = [0, 0] + [1] * 4 + [0] + [1] * 4 + [0, 0]
    case("qwenimage21-edit", (4, 4), 3, edit, edit + [0], 2.0, sizes=[(64, 64), (80, 80)], **QWEN)


def flux():
    model = transformer(FluxTransformer2DModel, "flux")
    vae = AutoencoderKL.from_pretrained(folder / "vae-flux" / "vae")

    def case(name, kind, shape, steps, scale, told, size=None):
        h, w = shape
        pipe = kind(FlowMatchEulerDiscreteScheduler(**FLUX), vae, None, None, None, None, model)
        pipe.set_progress_bar_config(disable=True)
        start, prompts = torch.randn(4, h, w), {"prompt": text(6, 32), "pooled": torch.randn(1, 24)}
        asked = dict(prompt_embeds=prompts["prompt"], pooled_prompt_embeds=prompts["pooled"], true_cfg_scale=scale)
        if scale > 1:
            prompts |= {"negative": text(6, 32), "negative_pooled": torch.randn(1, 24)}
            asked |= dict(negative_prompt_embeds=prompts["negative"], negative_pooled_prompt_embeds=prompts["negative_pooled"])
        seen = []
        if size:
            asked |= dict(image=picture(*size), max_area=4 * h * w, _auto_resize=False)
            seen = controls(pipe)
        draw(
            name, pipe, shape, lambda x: unpacked(x, h, w), prompts, start, seen, latents=packed(start), height=2 * h, width=2 * w, guidance_scale=told,
            num_inference_steps=steps, said={"transformer": "flux", "vae": "vae-flux", "scale": scale, "told": told}, **asked,
        )

    case("flux-guided", FluxPipeline, (6, 4), 3, 3.0, 3.5)
    case("kontext", FluxKontextPipeline, (4, 6), 4, 1.0, 2.5, size=(20, 12))
    case("kontext-guided", FluxKontextPipeline, (4, 4), 3, 2.0, 3.5, size=(8, 16))


def qwenimage_edit():
    pipeline_qwenimage_edit_plus.VAE_IMAGE_SIZE = pipeline_qwenimage_edit_plus.CONDITION_IMAGE_SIZE = 32 * 32
    vae = AutoencoderKLQwenImage.from_pretrained(folder / "vae-qwen" / "vae")

    def case(name, source, shape, steps, scale, sizes):
        h, w = shape
        pipe = QwenImageEditPlusPipeline(FlowMatchEulerDiscreteScheduler(**QWEN), vae, None, None, None, transformer(QwenImageTransformer2DModel, source))
        pipe.set_progress_bar_config(disable=True)
        start, prompts = torch.randn(4, h, w), {"prompt": text(9, 24)}
        asked = dict(prompt_embeds=prompts["prompt"], prompt_embeds_mask=torch.ones(1, 9, dtype=torch.long), true_cfg_scale=scale)
        if scale > 1:
            prompts["negative"] = text(5, 24)
            asked |= dict(negative_prompt_embeds=prompts["negative"], negative_prompt_embeds_mask=torch.ones(1, 5, dtype=torch.long))
        draw(
            name, pipe, shape, lambda x: unpacked(x, h, w), prompts, start, controls(pipe, lambda x: x[0, :, 0]), latents=packed(start), height=4 * h, width=4 * w,
            num_inference_steps=steps, image=[picture(*size) for size in sizes], said={"transformer": source, "vae": "vae-qwen", "scale": scale}, **asked,
        )

    case("qwenimage-edit", "qwenimage-edit", (6, 8), 4, 4.0, [(40, 40)])
    case("qwenimage-edit-zero-cond", "qwenimage-edit-zero-cond", (8, 4), 3, 2.5, [(32, 32), (90, 30)])


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    torch.exp = exponential
    for seed, f in enumerate([zimage, flux2, kandinsky5, qwenimage21, flux, qwenimage_edit]):
        torch.manual_seed(seed)
        f()
    safetensors.torch.save_file({k: v.detach().contiguous() for k, v in tensors.items()}, out / "golden.safetensors")
    (out / "cases.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items()) + "\n}\n")


if __name__ == "__main__":
    main()
