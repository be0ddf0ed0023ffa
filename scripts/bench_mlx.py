#!/usr/bin/env python3
"""Measure LoRA training steps and greedy decoding of mlx-lm, for comparison with lorafuse on
an Apple GPU.

One JSON line per mode, each measured in a process of its own. Needs mlx-lm; where there is no GPU it
measures mlx's CPU backend, and says so. Nothing is downloaded.

  python scripts/make_model.py --out small && python scripts/bench_mlx.py --model small
  python scripts/bench_mlx.py --model small --modes bf16 --batch 1 --seq 512 --steps 5

Modes: f32   base and adapters f32
       bf16  base bf16, adapters f32 as mlx-lm makes them
A step is forward, backward, and AdamW on adapters of all linear layers of all blocks but the head.
"""
import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time

LINEAR = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]


def train(model, a, vocab):
    """Times the steps, compiled as mlx-lm compiles them; returns the row's training columns."""
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optim
    from mlx_lm.tuner.trainer import default_loss

    optimizer = optim.AdamW(learning_rate=1e-4, weight_decay=0.0)
    batch = mx.random.randint(2, vocab, (a.batch, a.seq + 1), key=mx.random.key(a.seed))
    lengths = mx.array([[0, a.seq]] * a.batch)
    grad = nn.value_and_grad(model, default_loss)
    state = [model.state, optimizer.state]

    def step(batch):
        (loss, _), g = grad(model, batch, lengths)
        optimizer.update(model, g)
        return loss

    step = mx.compile(step, inputs=state, outputs=state)
    model.train()
    losses, seconds = [], []
    for _ in range(a.warmup + a.steps):
        start = time.perf_counter()
        loss = step(batch)
        mx.eval(loss, state)
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
    median = statistics.median(seconds[a.warmup:])
    return {"step_ms": round(1e3 * median, 2), "tok_s": round(a.batch * a.seq / median, 1), "loss_first": round(losses[0], 5), "loss_last": round(losses[-1], 5)}


def decode(model, a, vocab):
    """Times greedy decoding of --generate tokens behind --prompt ones; returns tokens per second, prompt included."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    model.eval()
    prompt = mx.random.randint(2, vocab, (a.prompt,), key=mx.random.key(a.seed))
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        for _token, _ in generate_step(prompt, model, max_tokens=a.generate):
            pass
        seconds.append(time.perf_counter() - start)
    return round(a.generate / statistics.median(seconds[1:]), 1)


def measure(a, mode):
    """Measures one mode in this process and prints its line."""
    import mlx.core as mx
    import mlx_lm
    from mlx_lm.tuner.utils import linear_to_lora_layers
    from mlx_lm.utils import load_model
    from pathlib import Path

    model, config = load_model(Path(a.model))
    model.set_dtype(mx.float32 if mode == "f32" else mx.bfloat16)
    model.freeze()
    mx.random.seed(a.seed)
    linear_to_lora_layers(model, config["num_hidden_layers"], {"rank": a.rank, "scale": 2.0, "dropout": 0.0, "keys": LINEAR})
    row = {
        "program": "mlx-lm", "mode": mode, "device": str(mx.default_device()), "mlx": mx.__version__, "mlx_lm": mlx_lm.__version__,
        "hidden": config["hidden_size"], "layers": config["num_hidden_layers"], "vocab": config["vocab_size"], "batch": a.batch, "seq": a.seq, "rank": a.rank,
    }
    if a.steps:
        row.update(train(model, a, config["vocab_size"]))
    if a.generate:
        row["decode_adapter_tok_s"] = decode(model, a, config["vocab_size"])
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="model folder, as scripts/make_model.py writes one")
    parser.add_argument("--modes", nargs="+", default=["f32", "bf16"], choices=["f32", "bf16"])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--rank", type=int, default=16, help="the scale is 2, as of a lora_alpha of twice the rank")
    parser.add_argument("--steps", type=int, default=8, help="timed steps; 0: no training")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the timed ones")
    parser.add_argument("--generate", type=int, default=64, help="tokens to decode; 0: no decoding")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    if not os.path.exists(os.path.join(a.model, "config.json")):
        parser.error(f"{a.model}: not a model folder, config.json is missing")
    failed = []
    for mode in a.modes:
        process = multiprocessing.get_context("spawn").Process(target=measure, args=(a, mode))
        process.start()
        process.join()
        if process.exitcode:
            failed.append(mode)
    return f"failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main())
