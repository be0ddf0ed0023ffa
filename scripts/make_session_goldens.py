#!/usr/bin/env python3
"""Write what torch and PEFT make of the losses and the steps of training sessions.

Every case is a folder with `init`, the adapter that it begins with, data.safetensors (of datum i `i.tokens` and so on),
golden.safetensors (of each run its log-probabilities, gradients and, where it takes steps, the adapter behind the last one) and
case.json: what is trained, and of each run the loss, its settings, the summed loss, and the steps with loss and norm of each.
Weights, adapter and all sums are float64. Losses are sums over the targets of all datums. The same command gives the same bytes.

  python scripts/make_session_goldens.py --out internal/train/session/testdata
"""
import argparse
import json
import os
import shutil
import sys

import torch
from peft import LoraConfig, get_peft_model

import reference

ATTENTION, MLP, HEAD = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"], ["lm_head"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
# name: (model below testdata, targets, rank, seed)
CASES = {
    "llama": ("lm/llama/model", ATTENTION + MLP, 2, 500),
    "tied-head": ("lm/qwen3/model", ["q_proj", "k_proj", "v_proj", "o_proj"] + HEAD, 2, 501),
    "experts": ("extra/qwen3-moe-normalized", HEAD, 3, 502),
}
LENGTHS, SEVERAL = [5, 1, 19, 8], 3
STEPS = [
    {"learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.0, "grad_clip_norm": 0.0},
    {"learning_rate": 5e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.1, "grad_clip_norm": 1.0},
    {"learning_rate": 2e-3, "beta1": 0.8, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.0, "grad_clip_norm": 0.5},
]
# name: (loss, its settings, data arrays that it reads, whether to take optimizer steps)
RUNS = {
    "cross_entropy": ("cross_entropy", {}, ["targets", "weights"], True),
    "several": ("cross_entropy", {}, ["several", "several_weights"], False),
    "importance_sampling": ("importance_sampling", {}, ["targets", "logprobs", "advantages"], False),
    "ppo": ("ppo", {}, ["targets", "logprobs", "advantages"], True),
    "ppo_set": ("ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.05}, ["targets", "logprobs", "advantages"], False),
    "ppo_by_token": ("ppo", {}, ["targets", "logprobs", "advantages", "clip_low", "clip_high"], False),
    "cispo": ("cispo", {}, ["targets", "logprobs", "advantages"], False),
    "cispo_set": ("cispo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}, ["targets", "logprobs", "advantages"], False),
    "dro": ("dro", {"beta": 0.05}, ["targets", "logprobs", "advantages"], False),
}
DEFAULTS = {"ppo": (0.8, 1.2), "cispo": (0.0, 4.0)}


def loss_of(name, config, p, d):
    """The summed loss of a datum, by the formulas of the documentation."""
    if name == "cross_entropy":
        return -(d["weights"] * p).sum()
    rho, a = torch.exp(p - d["logprobs"]), d["advantages"]
    if name == "importance_sampling":
        return -(rho * a).sum()
    if name == "dro":
        return -(p * a - 0.5 * config["beta"] * (p - d["logprobs"]) ** 2).sum()
    low, high = DEFAULTS[name]
    low = d.get("clip_low", torch.tensor(config.get("clip_low_threshold", low), dtype=p.dtype))
    high = d.get("clip_high", torch.tensor(config.get("clip_high_threshold", high), dtype=p.dtype))
    clipped = torch.minimum(torch.maximum(rho, low), high)
    if name == "ppo":
        return -torch.minimum(rho * a, clipped * a).sum()
    return -(clipped.detach() * p * a).sum()


def logprobs_of(model, d):
    logits = model(input_ids=d["tokens"].long()[None]).logits[0].double()
    targets = d["targets"].long()
    return torch.log_softmax(logits, -1).gather(1, targets.reshape(len(d["tokens"]), -1)).reshape(targets.shape)


def make_data(model, vocabulary, generator):
    data = []
    for n in LENGTHS:
        ids = lambda *shape: torch.randint(0, vocabulary, shape, generator=generator, dtype=torch.int32)
        normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float32)
        d = {"tokens": ids(n), "targets": ids(n), "weights": normal(n), "several": ids(n, SEVERAL), "several_weights": normal(n, SEVERAL), "advantages": normal(n)}
        d["weights"][n // 2] = 0
        with torch.no_grad():
            p = logprobs_of(model, d).float()
        d["logprobs"] = p + 0.4 * normal(n)
        d["clip_low"], d["clip_high"] = 0.95 - 0.3 * torch.rand(n, generator=generator), 1.05 + 0.3 * torch.rand(n, generator=generator)
        data.append(d)
    return data


def view(d, arrays):
    """The arrays that a run reads, under the names of the losses."""
    names = {"several": "targets", "several_weights": "weights"}
    out = {"tokens": d["tokens"]}
    for a in arrays:
        out[names.get(a, a)] = d[a].double() if d[a].is_floating_point() else d[a]
    return out


def total(model, run, data):
    name, config, arrays, _ = run
    probabilities, loss = [], 0.0
    for d in data:
        d = view(d, arrays)
        p = logprobs_of(model, d)
        probabilities.append(p)
        loss = loss + loss_of(name, config, p, d)
    return probabilities, loss


def make(case, testdata, out):
    base, targets, rank, seed = CASES[case]
    folder = os.path.join(out, case)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = reference.load_model(os.path.join(testdata, base), torch.float64)
    vocabulary = model.config.vocab_size
    if case == "experts":
        model.set_experts_implementation("eager")  # supports float64
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=32, target_modules=targets, target_parameters=EXPERTS if case == "experts" else None, init_lora_weights=False), autocast_adapter_dtype=False)
    with torch.no_grad():  # f32 numbers, small enough for an alpha of 32
        for p in reference.trainable(model).values():
            p.copy_((p * 0.1).float())
    model.peft_config["default"].base_model_name_or_path = "model"
    model.float().save_pretrained(os.path.join(folder, "init"), save_embedding_layers=False)
    os.remove(os.path.join(folder, "init", "README.md"))
    settings = os.path.join(folder, "init", "adapter_config.json")
    with open(settings, encoding="utf-8") as file:
        config = json.load(file)
    for k in ("target_modules", "target_parameters"):  # sets, in any order
        config[k] = config[k] and sorted(config[k])
    reference.save_json(settings, config)
    model.double().eval()
    params = reference.trainable(model)
    key = lambda name: name.replace(".default", "")
    data = make_data(model, vocabulary, generator)
    golden, runs = {}, {}
    start = {n: p.detach().clone() for n, p in params.items()}
    for name, run in RUNS.items():
        with torch.no_grad():
            for n, p in params.items():
                p.copy_(start[n])
        probabilities, loss = total(model, run, data)
        grads = torch.autograd.grad(loss, list(params.values()))
        for i, p in enumerate(probabilities):
            golden[f"{name}.logprobs.{i}"] = p.detach()
        for n, g in zip(params, grads):
            golden[f"{name}.gradient.{key(n)}"] = g.float()
        runs[name] = {"loss": run[0], "config": run[1], "arrays": run[2], "sum": float(loss.detach()), "steps": []}
        if not run[3]:
            continue
        adamw = torch.optim.AdamW(list(params.values()))
        for s in STEPS:
            _, loss = total(model, run, data)
            adamw.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(list(params.values()), s["grad_clip_norm"] or float("inf"))
            adamw.param_groups[0].update(lr=s["learning_rate"], betas=(s["beta1"], s["beta2"]), eps=s["eps"], weight_decay=s["weight_decay"])
            adamw.step()
            runs[name]["steps"].append({**s, "sum": float(loss.detach()), "grad_norm": float(norm)})
        adamw.zero_grad()
        for n, p in params.items():
            golden[f"{name}.final.{key(n)}"] = p.detach().float()
        runs[name]["final_sum"] = float(total(model, run, data)[1].detach())
    reference.save_tensors(os.path.join(folder, "golden.safetensors"), golden)
    reference.save_tensors(os.path.join(folder, "data.safetensors"), {f"{i}.{k}": v for i, d in enumerate(data) for k, v in d.items()})
    has = lambda part: all(t in targets for t in part)
    reference.save_json(os.path.join(folder, "case.json"), {
        "model": base, "rank": rank, "attention": has(ATTENTION), "mlp": has(MLP) or case == "experts", "unembed": has(HEAD), "data": len(data), "runs": runs,
    })
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(folder) for f in files)
    print(f"{case:12} {size:9,} bytes, " + ", ".join(f"{n} {r['sum']:.3f}" for n, r in runs.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the cases; a case that is there is replaced")
    parser.add_argument("--testdata", default=os.path.join(os.path.dirname(__file__), "..", "testdata"), help="where the models are")
    parser.add_argument("--only", nargs="+", choices=list(CASES), help="these cases only")
    a = parser.parse_args()
    torch.set_num_threads(1)  # deterministic order of summation
    torch.use_deterministic_algorithms(True)
    for case in a.only or CASES:
        make(case, a.testdata, a.out)


if __name__ == "__main__":
    sys.exit(main())
