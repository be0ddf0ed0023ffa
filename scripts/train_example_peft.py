#!/usr/bin/env python3
"""The shipped example trained with torch + transformers + PEFT on the CPU: the peer of `lorafuse train`.

Same model, data and settings: rank 16 on all linear layers, f32, AdamW, cosine with warm-up, batches of 16
rows shuffled anew each epoch. Prints loss and time; the first and last lines hold the evaluation loss.

  python scripts/train_example_peft.py --model MODEL --train train.jsonl --eval eval.jsonl
  python scripts/train_example_peft.py --model MODEL --train train.jsonl --eval eval.jsonl --seed 1 --out adapter
"""
import argparse
import sys
import time


def batches(rows, size, generator):
    """Yields lists of row indices without end: every epoch a new permutation, no row twice in it."""
    import torch

    queue = []
    while True:
        if len(queue) < size:
            queue += torch.randperm(rows, generator=generator).tolist()
        yield queue[:size]
        queue = queue[size:]


def main():
    start = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="model folder")
    parser.add_argument("--train", required=True, metavar="FILE", help="JSONL with prompt and completion")
    parser.add_argument("--eval", metavar="FILE", help="JSONL with prompt and completion")
    parser.add_argument("--out", help="folder for the trained adapter")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--alpha", type=float, default=32)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--warmup-steps", type=int, default=20)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--max-grad-norm", type=float, default=1.0)
    parser.add_argument("--max-length", type=int, default=160)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()

    import reference

    import torch
    from peft import LoraConfig, get_peft_model

    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    tokenizer = reference.load_tokenizer(a.model)
    pad = tokenizer.pad_token_id or 0
    train = reference.encode_pairs(tokenizer, reference.read_jsonl(a.train), a.max_length)
    held_out = reference.encode_pairs(tokenizer, reference.read_jsonl(a.eval)) if a.eval else []
    base = reference.load_model(a.model)
    base.set_attn_implementation("sdpa")  # the faster implementation, for a fair comparison
    model = get_peft_model(base, LoraConfig(r=a.rank, lora_alpha=a.alpha, target_modules="all-linear", task_type="CAUSAL_LM"))
    optimizer = reference.Optimizer(
        reference.trainable(model).values(), a.steps, a.lr, a.warmup_steps, a.weight_decay, a.max_grad_norm
    )
    print(f"ready after {time.perf_counter() - start:.1f} s: {len(train)} rows, {sum(p.numel() for p in optimizer.parameters):,} trainable parameters")
    if held_out:
        loss, tokens = reference.eval_loss(model, held_out, pad)
        print(f"eval before: loss {loss:.4f} over {tokens} tokens")

    order = batches(len(train), a.batch_size, torch.Generator().manual_seed(a.seed))
    model.train()
    began, tokens = time.perf_counter(), 0
    for step in range(a.steps):
        ids, labels = reference.collate([train[i] for i in next(order)], pad)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        lr = optimizer.lr
        norm = optimizer.step()
        tokens += ids.numel()
        if step % 20 == 0 or step == a.steps - 1:
            print(f"step {step:4} loss {float(loss.detach()):.4f} grad norm {norm:.3f} lr {lr:.2e} {time.perf_counter() - began:6.1f} s", flush=True)
    took = time.perf_counter() - began
    print(f"trained {a.steps} steps in {took:.1f} s, {tokens / took:.0f} tok/s with padding")
    if held_out:
        loss, tokens = reference.eval_loss(model, held_out, pad)
        print(f"eval after: loss {loss:.4f} over {tokens} tokens")
    if a.out:
        model.save_pretrained(a.out)
        print(f"adapter in {a.out}")
    print(f"total {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
