#!/usr/bin/env python3
"""Measure training steps of lorafuse and of torch + PEFT in turn, on one model and the same shapes.

Writes random rows of token ids, then runs both programs --rounds times, one after the other, so that both see the
machine's moods. Prints the median of the rounds' medians and the best step of each, and the peak memory.

  make build && python scripts/make_model.py --out output/bench-model
  .venv/bin/python scripts/bench_step.py --model output/bench-model
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import numpy as np
from safetensors.numpy import save_file

SCRIPTS = pathlib.Path(__file__).parent


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="model folder, see make_model.py")
    p.add_argument("--lorafuse", default="bin/lorafuse", help="the program to measure")
    p.add_argument("--work", default="output/bench", help="folder for rows and runs, made anew")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--steps", type=int, default=10, help="timed steps of a round, after 2 that are not")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--modes", nargs="+", default=["f32", "bf16"], help="arithmetic, ours and the peer's (see bench_peer.py)")
    return p.parse_args()


def ours(a, work, precision):
    out = work / "run"
    shutil.rmtree(out, ignore_errors=True)
    config = work / "bench.yaml"
    config.write_text(json.dumps({  # JSON is YAML
        "model": a.model, "output_dir": str(out), "data": {"train": str(work / "rows.safetensors"), "max_length": a.seq},
        "adapter": {"r": a.rank, "lora_alpha": 2 * a.rank, "target_modules": "all-linear"}, "batch_size": a.batch,
        "steps": a.steps + 2, "learning_rate": 1e-4, "schedule": "constant", "threads": a.threads, "precision": precision, "save_steps": 0,
        "log": {"tensorboard": False, "plot": False}}))
    process = subprocess.Popen([a.lorafuse, "train", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(message)
    lines = (out / "metrics.jsonl").read_text().splitlines()
    speeds = [json.loads(line)["tokens_per_second"] for line in lines][2:]
    return {f"lorafuse {precision}": (statistics.median(speeds), max(speeds), usage.ru_maxrss / 1024)}


def theirs(a):
    command = [sys.executable, str(SCRIPTS / "bench_peer.py"), "--model", a.model, "--batch", str(a.batch), "--seq", str(a.seq),
               "--rank", str(a.rank), "--steps", str(a.steps), "--threads", str(a.threads), "--generate", "0", "--modes", *a.modes]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return {f"torch+peft {r['mode']}": (r["tok_s"], r["tok_s_best"], r["train_peak_rss_mib"]) for r in rows}


def main():
    a = arguments()
    work = pathlib.Path(a.work)
    work.mkdir(parents=True, exist_ok=True)
    vocab = json.loads((pathlib.Path(a.model) / "config.json").read_text())["vocab_size"]
    ids = np.random.default_rng(0).integers(3, vocab, size=(16 * a.batch, a.seq)).astype(np.int64)
    save_file({"input_ids": ids, "labels": ids.copy()}, work / "rows.safetensors")
    rounds = []
    for _ in range(a.rounds):
        mine = {}
        for precision in [m for m in a.modes if m in ("f32", "bf16")]:
            mine |= ours(a, work, precision)
        rounds.append(mine | theirs(a))
    print(f"{'program':20}{'tokens/s':>10}{'best':>8}{'peak MiB':>10}")
    for name in rounds[0]:
        rows = [r[name] for r in rounds]
        print(f"{name:20}{statistics.median(r[0] for r in rows):10.0f}{max(r[1] for r in rows):8.0f}{max(r[2] for r in rows):10.0f}")


if __name__ == "__main__":
    main()
