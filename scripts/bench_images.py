#!/usr/bin/env python3
"""Compare layers of autoencoders on images with torch's, on the CPU: processor time of one worker, the least of several.

Convolutions of 3 by 3 with bias that keep the size of an image (conv) or halve it (half), and group norms of
32 groups with SiLU (norm). torch is given images with channels first and last, and the better of the two counts.
ratio is torch's time by that of BenchmarkImages, which is run here, in turns with torch.

  python scripts/bench_images.py
"""
import argparse
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


def note(least, name, ms):
    least[name] = min(ms, least.get(name, ms))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--runs", type=int, default=5, help="of each layer in a round")
    a = a.parse_args()
    torch.set_num_threads(1)
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
