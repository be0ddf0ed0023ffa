"""Writes internal/data/imagefolder/testdata/images: small images of many kinds, and their sizes.

    pip install pillow==13.0.0
    python scripts/make_image_goldens.py internal/data/imagefolder/testdata/images
"""

import io
import json
import pathlib
import sys

from PIL import Image

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
sizes = {}


def save(name, image, **options):
    image.save(out / name, **options)
    with Image.open(out / name) as back:
        sizes[name] = {"format": back.format.lower(), "width": back.width, "height": back.height}


def picture(width, height, mode="RGB"):
    gray = Image.linear_gradient("L").resize((width, height))
    return Image.merge("RGB", (gray, gray.rotate(90), gray.rotate(180))).convert(mode)


save("rgb.png", picture(7, 5))
save("rgba.png", picture(300, 2, "RGBA"))
save("palette.png", picture(9, 4, "P"))
save("gray16.png", picture(3, 8, "I;16"))
save("bits.png", picture(17, 3, "1"))
save("animated.png", picture(6, 4), save_all=True, append_images=[picture(6, 4).rotate(90)])

save("baseline.jpg", picture(33, 18))
save("progressive.jpg", picture(21, 40), progressive=True)
save("gray.jpeg", picture(5, 6, "L"))
save("cmyk.jpg", picture(16, 9, "CMYK"))
save("restarts.jpg", picture(70, 50), restart_marker_blocks=2)
preview = io.BytesIO()
picture(4, 4).save(preview, "jpeg")
save("preview.jpg", picture(64, 48), comment=preview.getvalue())  # an end marker before the pixel data

save("lossy.webp", picture(50, 20))
save("lossless.webp", picture(20, 301), lossless=True)
save("alpha.webp", picture(31, 11, "RGBA"), exact=True)
save("animated.webp", picture(13, 14), save_all=True, append_images=[picture(13, 14).rotate(90)])
save("large.webp", picture(16383, 1, "L"), quality=1)

(out / "sizes.json").write_text(json.dumps(sizes, indent=1) + "\n")
