#!/usr/bin/env python3
"""Write PEFT adapters of every kind that LoraConfig offers, with PyTorch's logits and training traces.

A case is a folder:
  case.json            what it shows, `base` (relative to the case), the LoraConfig as the user gave it, PEFT's
                       warnings, the rank, alpha and scale of every wrapped module, what a reload by PEFT gives
  adapter/             the adapter as PEFT saves it, B not zero (right after init for pissa and olora)
  golden.safetensors   input_ids, logits; for inits that rewrite the base also residual_logits (adapter off)
  train/               init/, batches.safetensors, grads_step0.safetensors, trace.json, final/, as in testdata/lm; where there
                       is a loss of balance, also grads_accumulated.safetensors, of a step of the first two batches
  converted/           adapter/ and golden.safetensors: the trained adapter for the unmodified base (r and alpha doubled), or
                       what PEFT saves of an adapter that is named as in transformers 4
Bases are the models of testdata/lm, some of testdata/extra, two of these with a loss of balance, and two smaller ones, written to base/
The same command gives the same bytes on one machine.

  python scripts/make_peft_goldens.py --out testdata/peft
  python scripts/make_peft_goldens.py --out testdata/peft --only init-pissa embedding
"""
import argparse
import copy
import json
import os
import shutil
import sys
import tempfile
import warnings

import torch
import peft
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer, ParamWrapper
from peft.tuners.lycoris_utils import LycorisLayer
from safetensors.torch import save_file

import make_model
import model_cases
import reference
from peft_cases import CASES

SMALL = {"hidden": 32, "layers": 2, "inter": 48, "heads": 4, "kv_heads": 2, "vocab": 96, "positions": 64}
HYPERPARAMETERS = {
    "steps": 10, "lr": 0.005, "betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0.1, "max_grad_norm": 0.1,
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
    found.update({name: os.path.join(os.path.dirname(lm), "extra", name) for name in ("gemma2", "olmo2", "gemma", "ministral3", "gemma3-whole", "mistral3", "llava", "llava-next", "aya-vision", "qwen2-vl", "qwen3-vl", "qwen3-vl-moe-tied", "gemma4-whole", *model_cases.CASES)})
    for name in ("mixtral", "qwen3-moe"):
        found[name] = os.path.join(os.path.dirname(lm), "extra", name)
        found[name + "-balance"] = balanced(found[name], os.path.join(out, "base", name + "-balance"))
    return found


def balanced(base, folder):
    """A copy of a model with the loss of an uneven use of experts."""
    if not os.path.exists(os.path.join(folder, "config.json")):
        os.makedirs(folder)
        shutil.copy(os.path.join(base, "model.safetensors"), folder)
        with open(os.path.join(base, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        make_model.write_json(os.path.join(folder, "config.json"), {**config, "output_router_logits": True, "router_aux_loss_coef": 0.3})
    return folder


class Maker:
    """Makes one case: adapter, golden, trace and conversion."""

    def __init__(self, name, base, out):
        self.case, self.base, self.folder = CASES[name], base, os.path.join(out, name)
        # The seeds of the first cases follow from their names; later cases set theirs.
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
            wrapped = get_peft_model(model, getattr(peft, self.case.kind + "Config")(task_type="CAUSAL_LM", **self.case.config))
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
        for key in ("target_modules", "exclude_modules", "target_parameters"):
            if isinstance(config.get(key), list):
                config[key].sort()
        config["base_model_name_or_path"] = self.relative_base()
        make_model.write_json(config_path, config)

    def relative_base(self):
        return os.path.relpath(self.base, self.folder).replace(os.sep, "/")

    def logits(self, model):
        vocab = model.config.get_text_config().vocab_size
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
        """Trains and writes the trace; returns the trained model."""
        model = self.wrap()
        self.save(model, "train", "init")
        parameters = reference.trainable(model)
        h = HYPERPARAMETERS
        optimizer = reference.Optimizer(
            parameters.values(), h["steps"], h["lr"], h["warmup_steps"], h["weight_decay"], h["max_grad_norm"], h["betas"], h["eps"]
        )
        ids, labels = self.batches(model.config.get_text_config().vocab_size)
        reference.save_tensors(self.path("train", "batches.safetensors"), {"input_ids": ids, "labels": labels})
        model.train()
        if model.config.to_dict().get("output_router_logits"):
            self.accumulate(model, parameters, ids, labels)
        trace = []
        for step in range(h["steps"]):
            batch = step % len(ids)
            loss = model(input_ids=ids[batch], labels=labels[batch]).loss
            loss.backward()
            if step == 0:
                exact = self.exact_gradients(model, ids[0], labels[0]) if self.case.float64 else {}
                reference.save_tensors(self.path("train", "grads_step0.safetensors"), {n: exact.get(n, p.grad) for n, p in parameters.items()})
            lr = optimizer.lr
            trace.append({"step": step, "batch": batch, "loss": float(loss.detach()), "grad_norm": optimizer.step(), "lr": lr})
        reference.save_json(self.path("train", "trace.json"), {"hyperparameters": h, "trace": trace})
        self.save(model, "train", "final")
        return model

    def exact_gradients(self, model, ids, labels):
        """{name: gradient} computed in f64, as f32."""
        model = copy.deepcopy(model).double()
        model.zero_grad(set_to_none=True)
        model.set_experts_implementation("eager")  # the others have no f64
        model(input_ids=ids, labels=labels).loss.backward()
        return {n: p.grad.float() for n, p in reference.trainable(model).items()}

    def accumulate(self, model, parameters, ids, labels):
        """Writes the gradients of a step of two micro-batches, as the Trainer of transformers has them: the loss of balance of each counts whole."""
        items = (labels[:2, :, 1:] != reference.IGNORE).sum()
        for batch in range(2):
            model(input_ids=ids[batch], labels=labels[batch], num_items_in_batch=items).loss.backward()
        reference.save_tensors(self.path("train", "grads_accumulated.safetensors"), {n: p.grad for n, p in parameters.items()})
        model.zero_grad(set_to_none=True)

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
        """{module path: rank, alpha, scale} of the modules or parameters that LoRA wraps."""
        found = {}
        for name, module in model.base_model.model.named_modules():
            if isinstance(module, LycorisLayer):
                found[name] = {"r": module.r["default"], "alpha": module.alpha["default"], "scale": module.scaling["default"]}
            if isinstance(module, LoraLayer):
                if isinstance(module, ParamWrapper):
                    name = name.replace(".base_layer", "") + "." + module.parameter_name
                found[name] = {"r": module.r["default"], "alpha": module.lora_alpha["default"], "scale": module.scaling["default"]}
        return found

    def reload(self, logits):
        """PEFT's logits of the saved adapter on a fresh base: equal, or their distance."""
        model = reference.load_adapter(reference.load_model(self.base), self.path("adapter"))
        _, again = self.logits(model)
        return float((again - logits).abs().max() / logits.abs().max())

    def make(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.case.former:
            return self.make_former()
        if self.case.train:
            trained = self.train()
            if self.case.convert:
                self.convert(trained)
        model = self.wrap()
        if self.case.fill:
            self.fill(model)
        golden = dict(zip(("input_ids", "logits"), self.logits(model)))
        effect = self.effect(golden["logits"])
        rewrites_base = str(self.case.config.get("init_lora_weights")).startswith(("pissa", "olora"))
        if (effect < 1e-5) != rewrites_base:
            reference.fail(f"{self.name}: the adapter changes the logits by {effect:.2g} relative")
        if rewrites_base:
            with model.disable_adapter():
                golden["residual_logits"] = self.logits(model)[1]
        reference.save_tensors(self.path("golden.safetensors"), golden)
        self.save(model.to(getattr(torch, self.case.dtype)) if self.case.dtype != "float32" else model, "adapter")
        drift = self.reload(golden["logits"])
        self.describe(model, drift)
        if self.case.merged:
            part = ".experts." if self.case.kind == "Lora" else ".mlp."
            last = max(n for n in dict(model.base_model.model.named_parameters()) if part in n).split("mlp")[0].removesuffix(".")
            weights = model.merge_and_unload().state_dict()
            reference.save_tensors(self.path("merged.safetensors"), {n: p for n, p in weights.items() if n.startswith(last + ".mlp.")})
        self.report(effect, drift)
        return self.size()

    def size(self):
        return sum(os.path.getsize(os.path.join(root, f)) for root, _, files in os.walk(self.folder) for f in files)

    def report(self, effect, drift):
        trace = ", trace" if self.case.train else ""
        print(f"{self.name:24} {self.size():8,} bytes, effect {effect:.1e}, reload differs by {drift:.1e}{trace}", flush=True)

    def describe(self, model, drift):
        reference.save_json(self.path("case.json"), {
            "about": self.case.about, "base": self.relative_base(), "config": self.case.config, "modules": self.modules(model),
            "warnings": self.warnings, "reload_is_exact": drift < 1e-5,
        })

    def effect(self, logits):
        """Distance of an adapter's logits from the base model's."""
        _, plain = self.logits(reference.load_model(self.base))
        return float((logits - plain).abs().max() / plain.abs().max())

    def write_former(self):
        """Writes an adapter whose experts have separate linear layers, as in transformers 4, and PEFT's results for it."""
        draw = torch.Generator().manual_seed(self.seed + 2000)
        base = reference.load_model(self.base)
        r, mixtral, tensors = self.case.config["r"], base.config.model_type == "mixtral", {}

        def add(name, shape):
            for part, size in (("A", (r, shape[1])), ("B", (shape[0], r))):
                tensors[f"base_model.model.{name}.lora_{part}.weight"] = 0.3 * torch.randn(size, generator=draw)

        names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
        for name, p in base.named_parameters():
            holder = name.rpartition(".")[0]
            former = holder.replace(".mlp.", ".block_sparse_moe.") if mixtral else holder
            if name.endswith("q_proj.weight") and mixtral or name.endswith(".mlp.gate.weight") and mixtral:
                add(former, p.shape)
            elif name.endswith("experts.gate_up_proj"):
                for e in range(p.shape[0]):
                    for n in names[:2]:
                        add(f"{former}.{e}.{n}", (p.shape[1] // 2, p.shape[2]))
            elif name.endswith("experts.down_proj"):
                for e in range(p.shape[0]):
                    add(f"{former}.{e}.{names[2]}", p.shape[1:])
        config = LoraConfig(task_type="CAUSAL_LM", inference_mode=True, base_model_name_or_path=self.relative_base(), **self.case.config)
        written = json.loads(json.dumps(config.to_dict(), default=sorted))
        make_model.write_json(self.path("adapter", "adapter_config.json"), dict(sorted(written.items())))
        save_file(tensors, self.path("adapter", "adapter_model.safetensors"), metadata={"format": "pt"})

    def make_former(self):
        self.write_former()
        model = reference.load_adapter(reference.load_model(self.base), self.path("adapter"))
        golden = dict(zip(("input_ids", "logits"), self.logits(model)))
        for part in ("", "converted"):
            reference.save_tensors(self.path(part, "golden.safetensors"), golden)
        self.save(model, "converted", "adapter")
        again = reference.load_adapter(reference.load_model(self.base), self.path("converted", "adapter"))
        drift = float((self.logits(again)[1] - golden["logits"]).abs().max())
        self.describe(model, drift)
        self.report(self.effect(golden["logits"]), drift)
        return self.size()


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


    torch.set_num_threads(1)  # deterministic order of summation
    torch.use_deterministic_algorithms(True)
    found = bases(a.out, lm)
    total = sum(Maker(name, found[CASES[name].base], a.out).make() for name in a.only or CASES)
    print(f"total {total:,} bytes without the bases")


if __name__ == "__main__":
    sys.exit(main())
