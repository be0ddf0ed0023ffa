"""Writes internal/data/cache/testdata/python: caches as the Python trainers leave them, and their batches.

    pip install torch==2.15.0 safetensors==0.8.0
    python scripts/make_cache_goldens.py internal/data/cache/testdata/python
    python scripts/make_cache_goldens.py --check DIR    # loads a cache that lorafuse has built

A folder for each element type. Sample a has safetensors entries, b both kinds, c .pt entries
alone; a .pt latent is a bare tensor, as the trainers save it. The .pt entries of b hold other
values than the safetensors ones, which must be read. batch.safetensors is what the trainers'
collate function makes of a, b and c: text padded to the longest, latents at the right and at
the bottom, both with zeros.
"""

import argparse
import pathlib

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

LENGTHS = {"a.png": 5, "b.jpg": 1, "c.webp": 3}
SIZES = {"a.png": (4, 6), "b.jpg": (6, 2), "c.webp": (2, 2)}


def save(tensors, path):
    save_file(tensors, path, metadata={"type": "embeddings"})


def write(out, dtype, seed):
    torch.manual_seed(seed)
    for folder in ("text_embs", "img_embs", "img_embs_control"):
        (out / folder).mkdir(parents=True, exist_ok=True)

    def entry(folder, name, tensors, pt):
        if name != "c.webp" and name != "c.txt":
            save(tensors, out / folder / f"{name}.safetensors")
        if name[0] in "bc":
            other = tensors if name[0] == "c" else {k: torch.zeros_like(v) for k, v in tensors.items()}
            torch.save(pt(other), out / folder / f"{name}.pt")
        return tensors

    texts, images, controls = [], [], []
    for name, length in LENGTHS.items():
        mask = torch.ones(length, dtype=torch.int64)
        mask[length // 2 + 1 :] = 0
        texts.append(entry("text_embs", name.split(".")[0] + ".txt", {"prompt_embeds": torch.randn(length, 3).to(dtype), "prompt_embeds_mask": mask}, lambda t: t))
        for folder, scale, into in (("img_embs", 1, images), ("img_embs_control", 2, controls)):
            h, w = SIZES[name]
            into.append(entry(folder, name, {"latent": torch.randn(2, 1, scale * h, w).to(dtype)}, lambda t: t["latent"])["latent"])
    save({"prompt_embeds": torch.randn(2, 3).to(dtype), "prompt_embeds_mask": torch.ones(2, dtype=torch.int64)}, out / "text_embs" / "empty_embedding.safetensors")

    def pad(latents):
        h, w = max(x.shape[2] for x in latents), max(x.shape[3] for x in latents)
        return torch.stack([F.pad(x, (0, w - x.shape[3], 0, h - x.shape[2])) for x in latents])

    longest = max(t["prompt_embeds"].shape[0] for t in texts)
    save_file({
        "latents": pad(images),
        "control_latents": pad(controls),
        "prompt_embeds": torch.stack([F.pad(t["prompt_embeds"], (0, 0, 0, longest - len(t["prompt_embeds"]))) for t in texts]),
        "prompt_embeds_mask": torch.stack([F.pad(t["prompt_embeds_mask"], (0, longest - len(t["prompt_embeds_mask"]))) for t in texts]),
    }, out / "batch.safetensors")


def check(directory):
    for path in sorted(directory.glob("*_emb*/*.safetensors")):
        with safe_open(path, "pt") as f:
            assert f.metadata()["type"] == "embeddings", path
        tensors = load_file(path)
        if path.parent.name == "text_embs":
            embeds, mask = tensors["prompt_embeds"], tensors["prompt_embeds_mask"]
            assert embeds.dim() == 2 and mask.shape == embeds.shape[:1] and mask.dtype == torch.int64, path
            assert set(mask.tolist()) <= {0, 1}, path
            assert set(tensors) == {"prompt_embeds", "prompt_embeds_mask"}, path
        else:
            assert set(tensors) == {"latent"} and tensors["latent"].dim() >= 3, path
        print(path.relative_to(directory), {k: (v.dtype, tuple(v.shape), v.double().sum().item()) for k, v in tensors.items()})


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", metavar="DIR", type=pathlib.Path)
    p.add_argument("out", nargs="?", type=pathlib.Path)
    args = p.parse_args()
    if args.check:
        check(args.check)
    else:
        for i, (name, dtype) in enumerate([("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32)]):
            write(args.out / name, dtype, i)
