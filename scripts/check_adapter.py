#!/usr/bin/env python3
"""Load an adapter with PEFT and compare its logits with a file; optionally compute its evaluation loss.

Any tensor that PEFT misses or does not expect is an error. Exit code 1 when the largest difference
over the largest absolute logit exceeds --tolerance.

  python scripts/check_adapter.py --model MODEL --adapter OUT --golden logits.safetensors
  python scripts/check_adapter.py --model MODEL --adapter OUT --eval eval.jsonl

--golden holds `input_ids` and `logits` as written by lorafuse or by scripts/dump_golden.py.
--eval reads prompt/completion rows: prompt and completion are tokenised apart and joined, then the end
token; the loss is the total negative log-likelihood of completions and end tokens over their number.
"""
import argparse
import sys


def compare(model, path, tolerance):
    """True when the model's logits equal the file's within tolerance, relative to the largest logit."""
    import reference

    import torch

    golden = reference.read_tensors(path)
    missing = {"input_ids", "logits"} - golden.keys()
    if missing:
        reference.fail(f"{path}: no tensor {sorted(missing)}, found {sorted(golden)}")
    with torch.no_grad():
        logits = model(input_ids=golden["input_ids"].long()).logits
    if logits.shape != golden["logits"].shape:
        reference.fail(f"{path}: logits are {list(golden['logits'].shape)}, PEFT computes {list(logits.shape)}")
    difference = (logits - golden["logits"]).abs()
    where = [int(i) for i in torch.unravel_index(difference.argmax(), difference.shape)]
    largest = float(difference.max())
    relative = largest / float(logits.abs().max())
    good = relative <= tolerance  # a NaN is not
    print(f"logits: max abs {largest:.3e}, relative {relative:.3e} at {where}, tolerance {tolerance:g}: {'ok' if good else 'DIFFERS'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="model folder")
    parser.add_argument("--adapter", required=True, help="adapter folder to judge")
    parser.add_argument("--golden", metavar="FILE", help="safetensors with input_ids and logits")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="largest relative difference (default 1e-5)")
    parser.add_argument("--eval", metavar="FILE", help="JSONL with prompt and completion")
    parser.add_argument("--batch-size", type=int, default=32)
    a = parser.parse_args()
    if not a.golden and not a.eval:
        parser.error("nothing to do: give --golden FILE, --eval FILE or both")

    import reference

    from peft import load_peft_weights

    model = reference.load_model(a.model)
    try:
        model = reference.load_adapter(model, a.adapter)
    except ValueError as error:
        reference.fail(str(error))
    loaded = len(load_peft_weights(a.adapter))
    print(f"{a.adapter}: PEFT loads all {loaded} tensors, none missing, none unexpected")
    zero = [n for n, p in model.named_parameters() if ("lora_B." in n or "lora_embedding_A." in n) and not p.any()]
    if zero:
        print(f"warning: {len(zero)} LoRA deltas are all zero, e.g. {zero[0]}")
    good = compare(model, a.golden, a.tolerance) if a.golden else True
    if a.eval:
        tokenizer = reference.load_tokenizer(a.model)
        pairs = reference.encode_pairs(tokenizer, reference.read_jsonl(a.eval))
        loss, tokens = reference.eval_loss(model, pairs, tokenizer.pad_token_id or 0, a.batch_size)
        print(f"eval: loss {loss:.6f} over {tokens} tokens of {len(pairs)} rows")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
