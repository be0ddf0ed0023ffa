#!/usr/bin/env python3
"""Write PEFT adapters of every kind that LoraConfig offers, with PyTorch's logits and training traces.

A case is a folder:
  case.json            what it shows, `base` (relative to the case), the LoraConfig as the user gave it, PEFT's
                       warnings, the rank, alpha and scale of every wrapped module, what a reload by PEFT gives
  adapter/             the adapter as PEFT saves it, B not zero (right after init for pissa and olora)
  golden.safetensors   input_ids, logits; for inits that rewrite the base also residual_logits (adapter off)
  train/               init/, batches.safetensors, grads_step0.safetensors, trace.json, final/, as in testdata/lm
  converted/           adapter/ and golden.safetensors: the trained adapter for the unmodified base (r and alpha doubled)
Bases are the models of testdata/lm, two of testdata/extra and two smaller ones of the same kinds, written to base/
The same command gives the same bytes on one machine.

  python scripts/make_peft_goldens.py --out testdata/peft
  python scripts/make_peft_goldens.py --out testdata/peft --only init-pissa embedding
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
import warnings

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer

import make_model
import reference
from peft_cases import CASES

SMALL = {"hidden": 32, "layers": 2, "inter": 48, "heads": 4, "kv_heads": 2, "vocab": 96, "positions": 64}
HYPERPARAMETERS = {
    "steps": 6, "lr": 0.005, "betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0.1, "max_grad_norm": 0.1,
    "scheduler": "cosine", "warmup_steps": 2,
}
PAD = 1


def bases(out, lm):
    """{name: folder}; writes the small ones."""
    small = {"small-llama": ("llama", 16, False), "small-qwen2": ("qwen2", None, True)}
    for name, (arch, head_dim, tie) in small.items():
        folder = os.path.join(out, "base", name)
        if not os.path.exists(os.path.join(folder, "config.json")):
            make_model.write_model(folder, make_model.model_config(arch, head_dim=head_dim, tie=tie, **SMALL), seed=7)
    found = {name: os.path.join(out, "base", name) for name in small}
    found.update({name: os.path.join(lm, name, "model") for name in ("llama", "qwen2", "gemma3")})
    found.update({name: os.path.join(os.path.dirname(lm), "extra", name) for name in ("mixtral", "qwen3-moe")})
    return found


class Maker:
    """Makes one case: adapter, golden, trace and conversion."""

    def __init__(self, name, base, out):
        self.case, self.base, self.folder = CASES[name], base, os.path.join(out, name)
        # The first cases are numbered by their names; each that came later brings its seed.
        first = sorted(n for n, case in CASES.items() if case.seed is None)
        self.name, self.seed = name, self.case.seed if self.case.seed is not None else 100 + first.index(name)
        self.warnings = []

    def path(self, *parts):
        path = os.path.join(self.folder, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def wrap(self):
        """The base with a fresh adapter on it; the same one at every call."""
        torch.manual_seed(self.seed)
        model = reference.load_model(self.base)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            wrapped = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **self.case.config))
        self.warnings = sorted({str(w.message) for w in caught if not issubclass(w.category, FutureWarning)})
        return wrapped

    def save(self, model, *parts, **more):
        """Saves the adapter as PEFT does, then sorts what PEFT leaves in the order of a Python set."""
        folder = self.path(*parts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.save_pretrained(folder, **{**self.case.save, **more})
        os.remove(os.path.join(folder, "README.md"))
        config_path = os.path.join(folder, "adapter_config.json")
        with open(config_path, encoding="utf-8") as file:
            config = json.load(file)
        for key in ("target_modules", "exclude_modules"):
            if isinstance(config[key], list):
                config[key].sort()
        config["base_model_name_or_path"] = self.relative_base()
        make_model.write_json(config_path, config)

    def relative_base(self):
        return os.path.relpath(self.base, self.folder).replace(os.sep, "/")

    def logits(self, model):
        vocab = model.config.vocab_size
        ids = torch.randint(2, vocab, (2, 8), generator=torch.Generator().manual_seed(self.seed))
        ids[1, 3] = PAD  # its embedding has values, but never a gradient
        if self.case.config.get("trainable_token_indices"):
            ids[0, 2:6] = torch.tensor([7, 40, 5, 6])
        model.eval()
        with torch.no_grad():
            return ids, model(input_ids=ids).logits

    def batches(self, vocab):
        """[5, 2, 12] ids and labels: prompt and padding without loss, one pad id in the middle of a row."""
        ids = torch.randint(2, vocab, (5, 2, 12), generator=torch.Generator().manual_seed(self.seed + 1000))
        if self.case.config.get("trainable_token_indices"):
            ids[:, 0, 4:9] = torch.tensor([7, 40, 5, 9, 3])
        ids[:, 0, 10:] = PAD
        ids[:, 1, 6] = PAD
        labels = ids.clone()
        labels[:, :, :3] = reference.IGNORE
        labels[:, 0, 10:] = reference.IGNORE
        return ids, labels

    def train(self):
        """Trains six steps and writes the trace; returns the trained model."""
        model = self.wrap()
        self.save(model, "train", "init")
        parameters = reference.trainable(model)
        h = HYPERPARAMETERS
        optimizer = reference.Optimizer(
            parameters.values(), h["steps"], h["lr"], h["warmup_steps"], h["weight_decay"], h["max_grad_norm"], h["betas"], h["eps"]
        )
        ids, labels = self.batches(model.config.vocab_size)
        reference.save_tensors(self.path("train", "batches.safetensors"), {"input_ids": ids, "labels": labels})
        model.train()
        trace = []
        for step in range(h["steps"]):
            batch = step % len(ids)
            loss = model(input_ids=ids[batch], labels=labels[batch]).loss
            loss.backward()
            if step == 0:
                reference.save_tensors(self.path("train", "grads_step0.safetensors"), {n: p.grad for n, p in parameters.items()})
            lr = optimizer.lr
            trace.append({"step": step, "batch": batch, "loss": float(loss.detach()), "grad_norm": optimizer.step(), "lr": lr})
        reference.save_json(self.path("train", "trace.json"), {"hyperparameters": h, "trace": trace})
        self.save(model, "train", "final")
        return model

    def convert(self, trained):
        """Saves the trained adapter for the unmodified base; checks that it is the same model."""
        ids, want = self.logits(trained)
        with tempfile.TemporaryDirectory() as scratch:
            initial = os.path.join(scratch, "initial")  # PEFT rewrites its config, so a copy
            shutil.copytree(self.path("train", "init"), initial)
            self.save(trained, "converted", "adapter", path_initial_model_for_weight_conversion=initial)
        _, logits = self.logits(reference.load_adapter(reference.load_model(self.base), self.path("converted", "adapter")))
        error = float((logits - want).abs().max() / want.abs().max())
        if error > 1e-5:
            reference.fail(f"{self.name}: the converted adapter differs from the trained one by {error:.2g}")
        reference.save_tensors(self.path("converted", "golden.safetensors"), {"input_ids": ids, "logits": logits})

    def fill(self, model):
        """Puts random values into every trainable tensor: zeros hide mistakes."""
        draw = torch.Generator().manual_seed(self.seed + 2000)
        stored = getattr(torch, self.case.dtype)
        seen = set()
        with torch.no_grad():
            for p in reference.trainable(model).values():
                if p.data_ptr() in seen:  # tied factors share their values
                    continue
                seen.add(p.data_ptr())
                size = float(p.square().mean().sqrt())
                p += (0.4 * size if size else 0.1) * torch.randn(p.shape, generator=draw)
                p.copy_(p.to(stored).to(p.dtype))

    def modules(self, model):
        """{module path: rank, alpha, scale} of what LoRA wraps."""
        found = {}
        for name, module in model.base_model.model.named_modules():
            if isinstance(module, LoraLayer):
                found[name] = {"r": module.r["default"], "alpha": module.lora_alpha["default"], "scale": module.scaling["default"]}
        return found

    def reload(self, logits):
        """What PEFT makes of the saved adapter on a fresh base: the same logits, or how far off."""
        model = reference.load_adapter(reference.load_model(self.base), self.path("adapter"))
        _, again = self.logits(model)
        return float((again - logits).abs().max() / logits.abs().max())

    def make(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.case.train:
            trained = self.train()
            if self.case.convert:
                self.convert(trained)
        model = self.wrap()
        if self.case.fill:
            self.fill(model)
        golden = dict(zip(("input_ids", "logits"), self.logits(model)))
        _, plain = self.logits(reference.load_model(self.base))
        effect = float((golden["logits"] - plain).abs().max() / plain.abs().max())
        rewrites_base = str(self.case.config.get("init_lora_weights")).startswith(("pissa", "olora"))
        if (effect < 1e-5) != rewrites_base:
            reference.fail(f"{self.name}: the adapter changes the logits by {effect:.2g} relative")
        if rewrites_base:
            with model.disable_adapter():
                golden["residual_logits"] = self.logits(model)[1]
        reference.save_tensors(self.path("golden.safetensors"), golden)
        self.save(model.to(getattr(torch, self.case.dtype)) if self.case.dtype != "float32" else model, "adapter")
        drift = self.reload(golden["logits"])
        reference.save_json(self.path("case.json"), {
            "about": self.case.about, "base": self.relative_base(), "config": self.case.config, "modules": self.modules(model),
            "warnings": self.warnings, "reload_is_exact": drift < 1e-5,
        })
        size = sum(os.path.getsize(os.path.join(root, f)) for root, _, files in os.walk(self.folder) for f in files)
        print(f"{self.name:24} {size:8,} bytes, effect {effect:.1e}, reload differs by {drift:.1e}{', trace' if self.case.train else ''}", flush=True)
        return size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the cases; a case that is there is replaced")
    parser.add_argument("--lm", help="folder of the models, default: lm beside --out")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="these cases only")
    a = parser.parse_args()
    unknown = set(a.only or []) - CASES.keys()
    if unknown:
        parser.error(f"unknown case {sorted(unknown)}; known: {', '.join(CASES)}")
    lm = a.lm or os.path.join(os.path.dirname(os.path.normpath(a.out)), "lm")
    if not os.path.isdir(lm):
        parser.error(f"no folder {lm}: give --lm")


    torch.set_num_threads(1)  # one order of summation
    torch.use_deterministic_algorithms(True)
    found = bases(a.out, lm)
    total = sum(Maker(name, found[CASES[name].base], a.out).make() for name in a.only or CASES)
    print(f"total {total:,} bytes without the bases")


if __name__ == "__main__":
    sys.exit(main())
