#!/usr/bin/env python3
"""Write how far PyTorch's bfloat16 arithmetic is from exact numbers on the tiny models and adapters in the test data.

Limits of the rounding error with --precision bf16. All models have f32 weights and run under autocast to bfloat16;
written are root mean squares of differences, relative to the root mean squares of the exact values:

  logits     of each folder with a config.json and a golden.safetensors (beside it or one above), against f64
  adapters   logits of each adapter, against its golden.safetensors (f32: a thousand times nearer)
  gradients  of the adapter that each training run begins with, on all its batches, against f32 (a thousand times nearer)
  losses     of all steps of each training run, against its trace.json

  python scripts/make_rounding_goldens.py --data testdata --out testdata/rounding.json
  python scripts/make_rounding_goldens.py --data testdata --out testdata/rounding.json --only gemma mistral3
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file

import reference


chosen = []  # names of models and cases; empty: all


def is_chosen(name):
    """Tells whether a folder, relative to the test data, is one of the chosen models and cases."""
    return not chosen or name.split("/")[1] in chosen


def rms(x):
    return float(x.double().pow(2).mean().sqrt())


def autocast(enabled=True):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


def load_model(folder, dtype=torch.float32):
    """The model, with GPT-2's scores in its own type: transformers raises an error for others than f32 there."""
    model = reference.load_model(folder, dtype)
    for module in model.modules():
        if hasattr(module, "reorder_and_upcast_attn"):
            module.reorder_and_upcast_attn = False
    return model


def relative_error(folder, golden):
    ids = load_file(golden)["input_ids"]
    with torch.no_grad():
        model = load_model(folder, torch.float64)
        model.set_experts_implementation("eager")  # the others do not support f64
        exact = model(input_ids=ids).logits
        with autocast():
            rounded = load_model(folder)(input_ids=ids).logits
    return rms(rounded.double() - exact) / rms(exact)


def models(data):
    """{folder: relative error of the logits}"""
    found = {}
    for config in (c for part in ("extra", "lm") for c in sorted((data / part).glob("**/config.json"))):
        folder = config.parent
        for golden in (folder / "golden.safetensors", folder.parent / "golden.safetensors"):
            if is_chosen(config.relative_to(data).as_posix()) and golden.exists() and (folder / "model.safetensors").exists() and folder.name != "model-bf16" and folder.parent.name != "quant":
                found[folder.relative_to(data).as_posix()] = round(relative_error(folder, golden), 6)
                break
    return found


def adapted(base, folder, trainable=False):
    """A model in f32 with the adapter of a folder."""
    with tempfile.TemporaryDirectory() as scratch:  # PEFT rewrites its config, so a copy
        copy = pathlib.Path(scratch) / "adapter"
        shutil.copytree(folder, copy)
        return reference.load_adapter(load_model(base), copy, trainable)


def cases(data):
    """[(case folder, base folder)] of testdata/peft."""
    for case in sorted(data.glob("peft/*/case.json")):
        yield case.parent, (case.parent / json.loads(case.read_text())["base"]).resolve()


def random_base(folder):
    """Tells whether the base weights that an adapter or run goes with depend on PyTorch's random numbers."""
    return json.loads((folder / "adapter_config.json").read_text()).get("init_lora_weights") == "pissa_niter_4"


def adapters(data):
    """{adapter folder: relative error of the logits}"""
    all_of_them = [(d, d / "golden.safetensors", d.parent.parent / "model") for d in sorted(data.glob("lm/*/adapters/*"))]
    for case, base in cases(data):
        all_of_them += [(case / part / "adapter", case / part / "golden.safetensors", base) for part in ("", "converted")]
    found = {}
    for folder, golden, base in all_of_them:
        if not golden.exists() or random_base(folder) or not is_chosen(folder.relative_to(data).as_posix()):
            continue
        want = load_file(golden)
        with torch.no_grad(), autocast():
            got = adapted(base, folder)(input_ids=want["input_ids"]).logits
        found[folder.relative_to(data).as_posix()] = round(rms(got - want["logits"]) / rms(want["logits"]), 6)
    return found


def gradients(model, batches, rounded):
    """The gradients of all batches, in one row."""
    parameters, found = reference.trainable(model), []
    for i, ids in enumerate(batches["input_ids"]):
        model.zero_grad(set_to_none=True)
        with autocast(rounded):
            loss = model(input_ids=ids, labels=batches["labels"][i] if "labels" in batches else ids).loss
        loss.backward()
        found += [parameters[name].grad.flatten() for name in sorted(parameters)]
    model.zero_grad(set_to_none=True)
    return torch.cat(found)


def replay(folder, base):
    """The relative errors of the gradients to begin with and of all losses of a training run."""
    recorded = json.loads((folder / "trace.json").read_text())
    h, batches = recorded["hyperparameters"], load_file(folder / "batches.safetensors")
    model = adapted(base, folder / "init", trainable=True)
    model.train()
    exact, rounded = gradients(model, batches, False), gradients(model, batches, True)
    first = load_file(folder / "grads_step0.safetensors")
    want = torch.cat([first[name].flatten() for name in sorted(first)])
    if rms(exact[: len(want)] - want) > 1e-4 * rms(want):
        reference.fail(f"{folder}: the first gradients are not those of grads_step0.safetensors")
    parameters = reference.trainable(model)
    optimizer = reference.Optimizer(
        parameters.values(), h["steps"], h["lr"], h["warmup_steps"], h["weight_decay"], h["max_grad_norm"], h["betas"], h["eps"]
    )
    losses, want = [], [step["loss"] for step in recorded["trace"]]
    for step in recorded["trace"]:
        ids = batches["input_ids"][step["batch"]]
        labels = batches["labels"][step["batch"]] if "labels" in batches else ids
        with autocast():
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step()
    losses, want = torch.tensor(losses, dtype=torch.float64), torch.tensor(want, dtype=torch.float64)
    return rms(rounded - exact) / rms(exact), rms(losses - want) / rms(want)


def runs(data):
    """{run folder: error} of gradients and of losses."""
    folders = [(t.parent, t.parent.parent.parent / "model") for t in sorted(data.glob("lm/*/train/*/trace.json"))]
    folders += [(case / "train", base) for case, base in cases(data) if (case / "train" / "trace.json").exists()]
    first, losses = {}, {}
    for folder, base in folders:
        name = folder.relative_to(data).as_posix()
        if random_base(folder / "init") or not is_chosen(name):
            continue
        first[name], losses[name] = (float(f"{x:.4g}") for x in replay(folder, base))
    return first, losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder of the test data")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="file to write")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these models and cases only; the values of others stay")
    a = parser.parse_args()
    chosen[:] = a.only
    torch.set_num_threads(1)
    found = {"logits": models(a.data)}
    if not found["logits"] and not chosen:
        reference.fail(f"{a.data}: no model with a golden.safetensors")
    found["adapters"] = adapters(a.data)
    found["gradients"], found["losses"] = runs(a.data)
    if chosen:
        found = {part: dict(sorted({**values, **found[part]}.items(), key=lambda x: x[0].split("/"))) for part, values in json.loads(a.out.read_text()).items()}
    a.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
