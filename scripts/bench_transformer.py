#!/usr/bin/env python3
"""Compare training steps of a diffusion transformer with diffusers and PEFT, on the CPU in float32, in turns.

A FLUX of random weights: width 512, 4 blocks of two streams and 8 of one; rank 16 on the projections of
attention, one picture of 32² latents (256 tokens) and 64 tokens of text, AdamW, clipping. Times are by the clock,
the least of all rounds; memory is the peak of the process. ratio is that of diffusers by ours.

  python scripts/bench_transformer.py

Needs torch, diffusers and peft. Nothing is downloaded.
"""
import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

WIDTH, HEADS = 512, 8


def transformer():
    import torch
    from diffusers import FluxTransformer2DModel

    torch.manual_seed(0)
    return FluxTransformer2DModel(
        in_channels=64, num_layers=4, num_single_layers=8, attention_head_dim=WIDTH // HEADS, num_attention_heads=HEADS,
        joint_attention_dim=512, pooled_projection_dim=256, guidance_embeds=True, axes_dims_rope=(16, 24, 24))


def peer(threads, runs):
    """Prints the least time of a step in milliseconds, and the peak memory in MiB."""
    import torch
    from peft import LoraConfig

    torch.set_num_threads(threads)
    m = transformer()
    m.requires_grad_(False)
    m.add_adapter(LoraConfig(r=16, lora_alpha=16, target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
    trained = [p for p in m.parameters() if p.requires_grad]
    adamw = torch.optim.AdamW(trained, lr=1e-4)
    x, target, text, pooled = torch.randn(1, 256, 64), torch.randn(1, 256, 64), torch.randn(1, 64, 512), torch.randn(1, 256)
    ids = torch.tensor([[0, i // 16, i % 16] for i in range(256)]).float()

    def step():
        y = m(x, encoder_hidden_states=text, pooled_projections=pooled, timestep=torch.tensor([0.5]), guidance=torch.ones(1),
              img_ids=ids, txt_ids=torch.zeros(64, 3)).sample
        ((y - target) ** 2).mean().backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        adamw.step()
        adamw.zero_grad()

    step()
    least = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        step()
        least = min(least, time.perf_counter() - start)
    print(1e3 * least, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--runs", type=int, default=5, help="steps in a round")
    a.add_argument("--threads", type=int, default=os.cpu_count())
    a.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    a.add_argument("--make", help=argparse.SUPPRESS)
    a = a.parse_args()
    if a.make:
        transformer().save_pretrained(a.make)
        return
    if a.peer:
        peer(a.threads, a.runs)
        return
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as dir:
        # In a separate process: children would inherit the memory of this one in their peak.
        subprocess.run([sys.executable, __file__, "--make", dir], check=True)
        binary = os.path.join(dir, "train.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "./internal/train"], check=True)
        env = dict(os.environ, LORAFUSE_BENCH_TRANSFORMER=dir, GOMAXPROCS=str(a.threads))
        for _ in range(a.rounds):
            text = subprocess.run([binary, "-test.run", "^$", "-test.bench", "Pictures", "-test.benchtime", f"{a.runs}x"],
                                  env=env, capture_output=True, text=True, check=True).stdout
            found = re.search(r"BenchmarkPictures\S*\s.*?([\d.]+) MiB\s+([\d.]+) ms", text)
            ours.append((float(found[2]), float(found[1])))
            text = subprocess.run([sys.executable, __file__, "--peer", "--threads", str(a.threads), "--runs", str(a.runs)],
                                  capture_output=True, text=True, check=True).stdout
            theirs.append(tuple(map(float, text.split()[-2:])))
    ms, mib = (min(x[i] for x in ours) for i in (0, 1))
    their_ms, their_mib = (min(x[i] for x in theirs) for i in (0, 1))
    print(f"lorafuse {ms:.0f} ms, {mib:.0f} MiB; diffusers + PEFT {their_ms:.0f} ms, {their_mib:.0f} MiB")
    print(f"ratio {their_ms / ms:.2f}, memory {mib / their_mib:.2f}")


if __name__ == "__main__":
    main()
