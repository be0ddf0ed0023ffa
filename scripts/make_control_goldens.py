#!/usr/bin/env python3
"""Preprocessing of pictures by diffusers' pipelines: sizes, and some of their pixels.

Writes internal/diffusion/testdata/controls.json. Pictures are gradients: red grows to the right,
green downwards. No model is needed: pipelines are stopped before they encode.
"""
import json
import pathlib

import numpy as np
import torch
from diffusers import Flux2KleinPipeline, FluxKontextPipeline, QwenImageEditPipeline, QwenImageEditPlusPipeline
from PIL import Image

SIZES = [(1024, 1024), (640, 480), (480, 641), (1920, 1080), (1000, 3000), (3000, 1001), (65, 67), (700, 100), (1333, 2001), (1408, 1000)]


class Stop(Exception):
    pass


def gradient(w, h):
    x = np.zeros((h, w, 3), np.uint8)
    x[..., 0] = (np.arange(w) * 255 // (w - 1))[None, :]
    x[..., 1] = (np.arange(h) * 255 // (h - 1))[:, None]
    x[..., 2] = 77
    return Image.fromarray(x)


def pixels(t):
    """Some of a control's values, [3, H, W] of -1 to 1."""
    t = t.reshape(3, t.shape[-2], t.shape[-1])
    h, w = t.shape[1:]
    at = [(c, y, x) for c in range(2) for y in (0, h // 3, h - 1) for x in (0, w // 3, w - 1)]
    return [[c, y, x, round(float(t[c, y, x]), 5)] for c, y, x in at]


def watch(pipeline, *names):
    seen = {}

    def stop_at(name, last):
        def f(*args, **kwargs):
            seen[name] = (args, kwargs)
            if last:
                raise Stop
            return torch.zeros(1, 4, 4), torch.zeros(1, 4, 4)

        return f

    for name in names:
        setattr(pipeline, name, stop_at(name, name == names[-1]))
    return seen


def run(name, sizes):
    images = [gradient(*s) for s in sizes]
    none = dict(scheduler=None, vae=None, text_encoder=None, tokenizer=None, transformer=None)
    if name == "FluxKontextPipeline":
        p = FluxKontextPipeline(**none, text_encoder_2=None, tokenizer_2=None)
        p.transformer = type("T", (), {"dtype": torch.float32, "config": type("C", (), {"in_channels": 64})})
        seen = watch(p, "prepare_latents")
        args = dict(prompt_embeds=torch.zeros(1, 4, 8), pooled_prompt_embeds=torch.zeros(1, 8))
    elif name == "Flux2KleinPipeline":
        p = Flux2KleinPipeline(**none)
        p.transformer = type("T", (), {"dtype": torch.float32, "config": type("C", (), {"in_channels": 128})})
        p.vae = type("V", (), {"dtype": torch.float32})
        seen = watch(p, "prepare_latents", "prepare_image_latents")
        args = dict(prompt_embeds=torch.zeros(1, 4, 8), guidance_scale=1.0)
    else:
        kind = QwenImageEditPipeline if name == "QwenImageEditPipeline" else QwenImageEditPlusPipeline
        p = kind(**none, processor=None)
        p.transformer = type("T", (), {"dtype": torch.float32, "config": type("C", (), {"in_channels": 64})})
        seen = watch(p, "prepare_latents")
        args = dict(prompt_embeds=torch.zeros(1, 4, 8), prompt_embeds_mask=torch.ones(1, 4))
    try:
        p(image=images if len(images) > 1 else images[0], **args)
    except Stop:
        pass
    if name == "Flux2KleinPipeline":
        controls = seen["prepare_image_latents"][1]["images"]
        size = seen["prepare_latents"][1]
        size = [size["width"], size["height"]]
    else:
        a = seen["prepare_latents"][0]
        controls = a[0] if isinstance(a[0], list) else [a[0]]
        size = [a[4], a[3]]
    return {
        "pipeline": name, "pictures": sizes, "size": size,
        "controls": [[c.shape[-1], c.shape[-2]] for c in controls], "pixels": [pixels(c) for c in controls],
    }


cases = []
for name in ("FluxKontextPipeline", "QwenImageEditPipeline", "QwenImageEditPlusPipeline", "Flux2KleinPipeline"):
    cases += [run(name, [s]) for s in SIZES]
for name in ("QwenImageEditPlusPipeline", "Flux2KleinPipeline"):
    cases.append(run(name, [(640, 480), (1000, 1500), (300, 310)]))
out = pathlib.Path(__file__).parent.parent / "internal/diffusion/testdata/controls.json"
out.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
