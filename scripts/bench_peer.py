#!/usr/bin/env python3
"""Measure LoRA training steps and greedy decoding of torch + transformers + PEFT on the CPU.

One JSON line per mode, each measured in a process of its own, so that the peak memory is that mode's.
The model is a folder (measure both programs on one written by scripts/make_model.py) or a random one of
the given shape. Nothing is downloaded.

  python scripts/make_model.py --out small && python scripts/bench_peer.py --model small
  python scripts/bench_peer.py --model small --modes f32 --threads 1 --batch 4 --seq 256 --steps 10
  python scripts/bench_peer.py --hidden 2048 --layers 22 --inter 5632 --heads 32 --kv-heads 4 --vocab 32000 \\
      --seq 512 --batch 1 --steps 3 --modes bf16

Modes: f32       base and adapters f32
       autocast  base and adapters f32, computed under torch.autocast(bfloat16)
       bf16      base bf16, adapters f32 (PEFT's default), computed under torch.autocast(bfloat16)
A step is forward, backward, clipping, AdamW. tok/s counts batch*seq tokens per step. gflops is 4*P*T per
step over its time, P the weights of the linear layers with the head, T the tokens: a frozen base costs
2PT forward and 2PT for the input gradients; LoRA and attention come on top and are not counted.
"""
import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time


def peak_rss_mib():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def load(a, dtype):
    """The base model: the folder's, or a random one of the given shape."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if a.model:
        return AutoModelForCausalLM.from_pretrained(a.model, dtype=dtype, attn_implementation="sdpa")
    torch.manual_seed(a.seed)
    config = AutoConfig.for_model(
        a.arch, hidden_size=a.hidden, intermediate_size=a.inter, num_hidden_layers=a.layers, num_attention_heads=a.heads,
        num_key_value_heads=a.kv_heads, vocab_size=a.vocab, max_position_embeddings=max(2048, a.seq), tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=0, pad_token_id=1,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(dtype)


def train(model, a, autocast, vocab):
    """Times the steps; returns the row's training columns."""
    import torch

    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0)
    ids = torch.randint(2, vocab, (a.batch, a.seq), generator=torch.Generator().manual_seed(a.seed))
    run = torch.compile(model) if a.compile else model
    model.train()
    losses, seconds, parts = [], [], {"forward": [], "backward": [], "update": []}
    for _ in range(a.warmup + a.steps):
        t0 = time.perf_counter()
        with autocast():
            loss = run(input_ids=ids, labels=ids).loss
        t1 = time.perf_counter()
        loss.backward()
        t2 = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(parameters, a.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        t3 = time.perf_counter()
        losses.append(float(loss.detach()))
        seconds.append(t3 - t0)
        for name, value in zip(parts, (t1 - t0, t2 - t1, t3 - t2)):
            parts[name].append(value)
    timed = seconds[a.warmup :]
    median, tokens = statistics.median(timed), a.batch * a.seq
    linear = sum(m.weight.numel() for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "lora_" not in n)
    return {
        "lora_parameters": sum(p.numel() for p in parameters), "linear_parameters": linear,
        "first_step_s": round(seconds[0], 4), "step_median_s": round(median, 4), "step_best_s": round(min(timed), 4),
        "tok_s": round(tokens / median, 1), "tok_s_best": round(tokens / min(timed), 1),
        "gflops": round(4 * linear * tokens / median / 1e9, 1),
        **{f"{name}_median_s": round(statistics.median(v[a.warmup :]), 4) for name, v in parts.items()},
        "loss_first": round(losses[0], 5), "loss_last": round(losses[-1], 5),
    }


def decode(model, a, autocast, vocab):
    """Times greedy decoding of --generate tokens after --prompt ones; returns tokens per second, prompt included."""
    import torch

    model.eval()
    prompt = torch.randint(2, vocab, (1, a.prompt), generator=torch.Generator().manual_seed(a.seed))
    options = {"max_new_tokens": a.generate, "min_new_tokens": a.generate, "do_sample": False, "use_cache": True, "attention_mask": torch.ones_like(prompt)}
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        with torch.inference_mode(), autocast():
            model.generate(input_ids=prompt, **options)
        seconds.append(time.perf_counter() - start)
    return round(a.generate / statistics.median(seconds[1:]), 1)


def measure(a, mode):
    """Measures one mode in this process and prints its line."""
    os.environ["OMP_NUM_THREADS"] = str(a.threads)  # before torch starts its threads
    start = time.perf_counter()
    import reference  # noqa: F401  (makes transformers quiet and offline)

    import peft
    import torch
    import transformers

    torch.set_num_threads(a.threads)
    imported, import_rss = time.perf_counter(), peak_rss_mib()
    base = load(a, torch.bfloat16 if mode == "bf16" else torch.float32)
    loaded = time.perf_counter()
    targets = a.targets if a.targets == "all-linear" else a.targets.split(",")
    torch.manual_seed(a.seed)
    model = peft.get_peft_model(base, peft.LoraConfig(
        r=a.rank, lora_alpha=2 * a.rank, target_modules=targets, lora_dropout=a.dropout, task_type="CAUSAL_LM"
    ))
    if a.checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable()

    def autocast():
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=mode != "f32")

    config = base.config
    row = {
        "program": "torch+peft" + (" compiled" if a.compile else ""), "mode": mode, "threads": a.threads,
        "torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
        "arch": config.model_type, "hidden": config.hidden_size, "layers": config.num_hidden_layers,
        "inter": config.intermediate_size, "vocab": config.vocab_size, "batch": a.batch, "seq": a.seq, "rank": a.rank,
        "targets": a.targets, "dropout": a.dropout, "checkpointing": a.checkpointing,
        "import_s": round(imported - start, 2), "load_s": round(loaded - imported, 2), "import_rss_mib": round(import_rss, 1),
    }
    if a.steps:
        row.update(train(model, a, autocast, config.vocab_size))
        row["train_peak_rss_mib"] = round(peak_rss_mib(), 1)
    if a.generate:
        if a.checkpointing:
            model.gradient_checkpointing_disable()
        row["decode_adapter_tok_s"] = decode(model, a, autocast, config.vocab_size)
        row["decode_merged_tok_s"] = decode(model.merge_and_unload(), a, autocast, config.vocab_size)
    row["peak_rss_mib"] = round(peak_rss_mib(), 1)
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model folder; without it a random model of the shape below")
    shape = parser.add_argument_group("shape of the random model")
    shape.add_argument("--arch", default="llama", choices=["llama", "qwen2"])
    shape.add_argument("--hidden", type=int, default=512)
    shape.add_argument("--layers", type=int, default=8)
    shape.add_argument("--inter", type=int, default=1408)
    shape.add_argument("--heads", type=int, default=8)
    shape.add_argument("--kv-heads", type=int, default=4)
    shape.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--modes", nargs="+", default=["f32", "autocast"], choices=["f32", "autocast", "bf16"])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--rank", type=int, default=16, help="lora_alpha is twice the rank")
    parser.add_argument("--targets", default="all-linear", help="all-linear or names separated by commas")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--max-grad-norm", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="timed steps; 0: no training")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the timed ones")
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations in the backward pass")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model: the hardest baseline")
    parser.add_argument("--generate", type=int, default=64, help="tokens to decode; 0: no decoding")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    if a.model and not os.path.exists(os.path.join(a.model, "config.json")):
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
