"""Writes internal/data/picture/testdata: small pictures, and Pillow's results for them.

Usage: python scripts/make_picture_goldens.py  (Pillow, numpy)

golden.json lists, for each picture and size, the middle of the picture that has the size's shape, scaled by BICUBIC.
"""

import json
import pathlib

import numpy as np
from PIL import Image, ImageOps

OUT = pathlib.Path(__file__).parent.parent / "data" / "picture" / "testdata"


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    r = np.random.default_rng(27)
    y, x = np.mgrid[0:46, 0:74]
    smooth = np.stack([128 + 100 * np.sin(x / 9), 128 + 90 * np.cos(y / 7), 255 * (x + y) / 120], -1)
    picture = Image.fromarray(np.clip(smooth + r.normal(0, 25, smooth.shape), 0, 255).astype(np.uint8))
    picture.save(OUT / "rgb.png")
    picture.convert("L").save(OUT / "grey.png")
    picture.save(OUT / "picture.webp", lossless=True)
    picture.convert("P", palette=Image.ADAPTIVE, colors=16).save(OUT / "palette.png")
    rgba = picture.convert("RGBA")
    alpha = np.where((x - 30) ** 2 + (y - 20) ** 2 < 250, 255, 0).astype(np.uint8)
    rgba.putalpha(Image.fromarray(alpha))
    rgba.save(OUT / "alpha.png")
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        picture.save(OUT / f"turned{orientation}.jpg", exif=exif, quality=70, subsampling=0)
    exif[0x0112] = 6
    picture.save(OUT / "turned6.png", exif=exif)
    picture.save(OUT / "turned6.webp", exif=exif, lossless=True)
    picture.save(OUT / "lossy.webp", quality=80)
    for subsampling in (1, 2):
        picture.save(OUT / f"chroma{subsampling}.jpg", quality=90, subsampling=subsampling)
    golden = {}
    for path in sorted(OUT.glob("*.*")):
        if path.suffix == ".json":
            continue
        image = ImageOps.exif_transpose(Image.open(path))
        if image.mode == "RGBA":
            white = Image.new("RGBA", image.size, (255, 255, 255, 255))
            image = Image.alpha_composite(white, image)
        image = image.convert("RGB")
        golden[path.name] = {}
        for w, h in ((16, 16), (48, 16), (96, 128)) if path.name == "rgb.png" else ((24, 16),):
            box = middle(*image.size, w, h)
            small = np.asarray(image.crop(box).resize((w, h), Image.BICUBIC))
            golden[path.name][f"{w}x{h}"] = small.reshape(-1).tolist() if w * h < 1000 else small[::7, ::7].reshape(-1).tolist()
    (OUT / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


def middle(w, h, tw, th):
    cw, ch = w, h
    if w * th > h * tw:
        cw = max(1, int(h * tw / th + 0.5))
    else:
        ch = max(1, int(w * th / tw + 0.5))
    x, y = (w - cw) // 2, (h - ch) // 2
    return x, y, x + cw, y + ch


main()
