#!/usr/bin/env python3
"""Compare autoencoders on images with torch's, on the CPU: processor time of one worker, the least of several.

Convolutions of 3 by 3 with bias that keep the size of an image (conv) or halve it (half), and group norms of
32 groups with SiLU (norm). torch is given images with channels first and last, and the better of the two counts.
ratio is torch's time by that of BenchmarkImages, which is run here, in turns with torch.

With --encoders it is whole encoders instead, FLUX.1's and Qwen-Image's at their real widths with random weights
(0.5 GB in a temporary folder), on a picture of --side pixels a side: diffusers' encode in float32 by that of
BenchmarkEncode, in turns.

  python scripts/bench_images.py
  python scripts/bench_images.py --encoders
"""
import argparse
import os
import re
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F

SIZES = [(128, 256), (256, 128), (512, 64)]


def layers(channels, pixels):
    """The layers of one size, with their inputs."""
    x = torch.rand(1, channels, pixels, pixels) - 0.5
    conv = torch.nn.Conv2d(channels, channels, 3, padding=1)
    half = torch.nn.Conv2d(channels, channels, 3, stride=2)
    norm = torch.nn.GroupNorm(32, channels, eps=1e-6)
    for form in (torch.contiguous_format, torch.channels_last):
        def to(m, form=form):
            return m.to(memory_format=form)
        yield "conv", to(conv), to(x)
        yield "half", to(half), to(F.pad(x, (0, 1, 0, 1)))
        yield "norm", (lambda x: F.silu(norm(x), inplace=True)), to(x)


def torch_times(least, runs):
    for channels, pixels in SIZES:
        for name, layer, x in layers(channels, pixels):
            layer(x)
            for _ in range(runs):
                start = time.thread_time()
                layer(x)
                note(least, f"{name}/{channels}/{pixels}", 1e3 * (time.thread_time() - start))


def go_times(least, binary, runs):
    text = subprocess.run([binary, "-test.run", "^$", "-test.bench", "Images", "-test.benchtime", f"{runs}x"],
                          capture_output=True, text=True, check=True).stdout
    for name, ms in re.findall(r"BenchmarkImages/(\S+?)(?:-\d+)?\s.*?([\d.]+) ms", text):
        note(least, name, float(ms))


def encoders():
    """The autoencoders, by name, at the widths of the released ones."""
    from diffusers import AutoencoderKL, AutoencoderKLQwenImage

    yield "FLUX.1", lambda: AutoencoderKL(
        block_out_channels=(128, 256, 512, 512), down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=2, latent_channels=16, use_quant_conv=False, use_post_quant_conv=False, shift_factor=0.1159, scaling_factor=0.3611)
    yield "Qwen-Image", AutoencoderKLQwenImage


def go_encode(least, binary, name, folder, a):
    env = {**os.environ, "VAE_BENCH": folder, "VAE_BENCH_SIDE": str(a.side)}
    text = subprocess.run([binary, "-test.run", "^$", "-test.bench", "Encode", "-test.benchtime", f"{a.runs}x"],
                          capture_output=True, text=True, check=True, env=env).stdout
    note(least, name, float(re.search(r"([\d.]+) ms", text)[1]))


def torch_encode(least, name, vae, a):
    frame = (1,) if type(vae).__name__.endswith("QwenImage") else ()
    x = torch.rand(1, 3, *frame, a.side, a.side) * 2 - 1
    for last in (False, True):
        for p in vae.parameters():
            form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(p.dim())
            p.data = p.data.contiguous(memory_format=form if last and form else torch.contiguous_format)
        vae.encode(x)
        for _ in range(a.runs):
            start = time.process_time()
            vae.encode(x)
            note(least, name, 1e3 * (time.process_time() - start))


def whole(a):
    print(f"{'encoder':24} {'ours ms':>8} {'torch ms':>8} ratio   (one picture of {a.side}x{a.side})")
    for name, make in encoders():
        ours, theirs = {}, {}
        with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
            binary = folder + "/vae.test"
            subprocess.run(["go", "test", "-c", "-o", binary, "./internal/diffusion/vae"], check=True)
            vae = make().eval()
            vae.save_pretrained(folder + "/vae")
            for _ in range(a.rounds):
                go_encode(ours, binary, name, folder + "/vae", a)
                torch_encode(theirs, name, vae, a)
        print(f"{name:24} {ours[name]:8.0f} {theirs[name]:8.0f} {theirs[name] / ours[name]:5.2f}")


def note(least, name, ms):
    least[name] = min(ms, least.get(name, ms))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--runs", type=int, default=5, help="of each layer in a round")
    a.add_argument("--encoders", action="store_true", help="whole encoders")
    a.add_argument("--side", type=int, default=256, help="of their picture, in pixels")
    a = a.parse_args()
    torch.set_num_threads(1)
    if a.encoders:
        whole(a)
        return
    ours, theirs = {}, {}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        binary = folder + "/cpu.test"
        subprocess.run(["go", "test", "-c", "-o", binary, "./backend/cpu"], check=True)
        for _ in range(a.rounds):
            go_times(ours, binary, a.runs)
            torch_times(theirs, a.runs)
    print(f"{'layer/channels/pixels':24} {'ours ms':>8} {'torch ms':>8} ratio")
    for name, ms in ours.items():
        print(f"{name:24} {ms:8.1f} {theirs[name]:8.1f} {theirs[name] / ms:5.2f}")


if __name__ == "__main__":
    main()
