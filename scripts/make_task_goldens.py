#!/usr/bin/env python3
"""Write training runs of encoders and classifiers as torch, PEFT and sentence-transformers make them in float64.

Every case is a folder with rows.jsonl, the adapters `init` and `final`, grads.safetensors (of the first step, as a mean
over its rows) and case.json: the model's folder, the settings, and loss and gradient norm of each step. Cases of
classifiers also have logits.safetensors (`init` and `final` of all rows with either adapter), `merged` (the final
adapter merged by PEFT), and in case.json the loss of all rows with it. The models are from testdata/encoders,
without dropout; tensors are stored in float32. The same command gives the same bytes.

  python scripts/make_task_goldens.py --out testdata/tasks
  python scripts/make_task_goldens.py --out testdata/tasks --only pairs-bert
"""
import argparse
import json
import os
import shutil
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import AutoModelForSequenceClassification, AutoTokenizer

ROWS = [
    ("A cat sat on the mat.", "The cat is on a mat.", "The fox jumps over the mat, twice."),
    ("Where is the nearest station?", "How do I find the station?", "The station is where the dog sat."),
    ("The quick brown fox", "a fox that is quick", "the lazy dog"),
    ("Übergrößen sind NICHT vorrätig!", "NICHT vorrätig", "vorrätig"),
    ("Fine-tuning with low rank adapters changes few weights", "adapters of low rank", "the others stay where they lie in the file"),
    ("one", "one text", ""),
    ("A text that is longer than the others, so that it is cut where the model says that texts are cut.", "longer text that is cut", "texts"),
    ("emoji 🙂", "🙂", "漢字"),
    ("the file", "where they lie in the file", "few weights"),
    ("the dog", "the lazy dog, twice", "the mat"),
    ("this and that", "and more of it", "over the mat"),
    ("   spaces   around", "around and within", "whatever stands behind"),
]
STEPS, BATCH, ACCUMULATION = 10, 3, 2
LR, BETAS, EPS, DECAY, CLIP = 2e-3, (0.9, 0.99), 1e-8, 0.01, 0.5

# name: (model, LoRA, loss settings)
PAIRS = {
    "pairs-bert": ("bert", {"r": 2, "lora_alpha": 4, "target_modules": ["query", "value", "dense"], "exclude_modules": ["pooler.dense"]}, {"negatives": False, "scale": 20.0}),
    "pairs-mpnet": ("mpnet", {"r": 3, "lora_alpha": 4, "target_modules": ["q", "v"], "use_rslora": True}, {"negatives": True, "scale": 20.0}),
    "pairs-xlm-roberta": ("xlm-roberta", {"r": 2, "target_modules": ["value", "output.dense"], "bias": "lora_only", "exclude_modules": ["pooler.dense"]}, {"negatives": True, "scale": 12.5}),
    "pairs-deberta-v2": ("deberta-v2-p2c", {"r": 2, "lora_alpha": 4, "target_modules": ["query_proj", "value_proj"], "use_dora": True}, {"negatives": True, "scale": 20.0}),
    "pairs-llama": ("llama", {"r": 2, "target_modules": ["q_proj", "down_proj"]}, {"negatives": False, "scale": 20.0}),
}

SINGLE, MULTI, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
# name: (model, LoRA, task, class names, tokens of a text including special tokens)
CLASSES = {
    "classes-bert": ("bert-old", {"r": 2, "lora_alpha": 4, "target_modules": ["query", "dense"]}, SINGLE, ["other", "related", "same"], 48),
    "classes-xlm-roberta": ("xlm-roberta", {"r": 3, "target_modules": ["value", "dense"], "use_rslora": True}, MULTI, ["animal", "place", "number", "rest"], 46),
    "classes-mpnet": ("mpnet", {"r": 2, "target_modules": ["q", "o"], "bias": "lora_only"}, REGRESSION, ["LABEL_0"], 298),
    "classes-distilbert": ("distilbert", {"r": 2, "lora_alpha": 5, "target_modules": ["q_lin", "lin2"]}, SINGLE, ["other", "related", "same"], 48),
    "classes-modernbert": ("modernbert", {"r": 2, "lora_alpha": 3, "target_modules": ["Wqkv", "Wo"], "modules_to_save": ["head"]}, REGRESSION, ["LABEL_0"], 48),
    "classes-modernbert-mean": ("modernbert-head", {"r": 2, "target_modules": ["Wqkv", "Wi", "dense"]}, MULTI, ["animal", "place", "number", "rest"], 48),
    "classes-nomic-bert": ("nomic-bert", {"r": 2, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj", "up_proj"], "modules_to_save": ["pooler"]}, SINGLE, ["other", "related", "same"], 48),
    "classes-gte": ("gte-head", {"r": 2, "target_modules": ["k_proj", "up_proj", "gate_proj", "down_proj"], "bias": "lora_only", "modules_to_save": ["pooler"]}, MULTI, ["animal", "place", "number", "rest"], 48),
    "classes-deberta-v2": ("deberta-v2", {"r": 2, "lora_alpha": 5, "target_modules": ["query_proj", "key_proj"], "modules_to_save": ["pooler"]}, SINGLE, ["other", "related", "same"], 48),
    "classes-deberta-v2-own": ("deberta-v2-head", {"r": 2, "target_modules": ["value_proj", "pos_key_proj", "pos_query_proj", "dense"], "modules_to_save": ["pooler"]}, MULTI, ["animal", "place", "number", "rest"], 60),
    "classes-llama": ("llama", {"r": 2, "target_modules": ["q_proj", "down_proj"], "use_dora": True}, SINGLE, ["short", "long"], 48),
}


def write_json(path, data):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, ensure_ascii=False)
        file.write("\n")


def save_adapter(model, folder):
    model.save_pretrained(folder)
    path = os.path.join(folder, "README.md")
    if os.path.exists(path):
        os.remove(path)
    path = os.path.join(folder, "adapter_config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["base_model_name_or_path"] = os.path.basename(config["base_model_name_or_path"])
    config["target_modules"].sort()
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)


def record(folder, whole, tuned, losses, settings, more=dict):
    """Train in float64 with the sum of the losses that losses returns for the rows of a micro-batch; write everything
    except the rows. whole contains tuned; more is asked at the end."""
    save_adapter(tuned, os.path.join(folder, "init"))
    whole.double()
    trained = {n: p for n, p in tuned.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    trace, per_epoch = [], len(ROWS) // (BATCH * ACCUMULATION)
    for step in range(STEPS):
        total = 0.0
        for micro in range(ACCUMULATION):
            first = (step % per_epoch * ACCUMULATION + micro) * BATCH
            loss = losses(range(first, first + BATCH)) / (BATCH * ACCUMULATION)
            loss.backward()
            total += loss.item()
        if step == 0:
            save_file({n: p.grad.float().contiguous() for n, p in trained.items()}, os.path.join(folder, "grads.safetensors"))
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        trace.append({"loss": total, "grad_norm": norm.item()})
    whole.float()
    save_adapter(tuned, os.path.join(folder, "final"))
    whole.double()
    write_json(os.path.join(folder, "case.json"), {
        **settings, "batch_size": BATCH, "gradient_accumulation_steps": ACCUMULATION, "lr": LR, "betas": BETAS, "eps": EPS,
        "weight_decay": DECAY, "max_grad_norm": CLIP, **more(), "trace": trace})


def pairs(name, models, folder, seed):
    base, adapter, settings = PAIRS[name]
    st = SentenceTransformer(os.path.join(models, base), device="cpu", model_kwargs={"dtype": torch.float32})
    keys = ["anchor", "positive", "negative"][: 3 if settings["negatives"] else 2]
    with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as file:
        for row in ROWS:
            file.write(json.dumps(dict(zip(keys, row)), ensure_ascii=False) + "\n")
    torch.manual_seed(seed)
    tuned = get_peft_model(st[0].auto_model, LoraConfig(**adapter, task_type="FEATURE_EXTRACTION", init_lora_weights=False))
    st.eval()
    loss = MultipleNegativesRankingLoss(st, scale=settings["scale"])

    def losses(rows):
        columns = zip(*[ROWS[i][: len(keys)] for i in rows])
        return loss([st.tokenize(list(c)) for c in columns], None) * len(rows)

    record(folder, st, tuned, losses, {"base": base, "task": "embedding", "scale": settings["scale"]})


def label(problem, names, i):
    """The target of row i."""
    if problem == SINGLE:
        return names[(i * i + i // 2) % len(names)]
    if problem == MULTI:
        return [n for j, n in enumerate(names) if (i * 7 + j * 5) % 4 < 2 and i != 5]
    return [0.5, -1.25, 3.0, 2.75, 0.0, -0.5][i % 6]


def classes(name, models, folder, seed):
    base, adapter, problem, names, length = CLASSES[name]
    path = os.path.join(models, base)
    joined = base == "bert-old"  # its second text has its own token type
    rows = [{"text": a, **({"text_pair": b} if joined else {}), "label": label(problem, names, i)} for i, (a, b, _) in enumerate(ROWS)]
    with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    tokenizer = AutoTokenizer.from_pretrained(path)
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        path, dtype=torch.float32, id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)}, problem_type=problem)
    tuned = get_peft_model(model, LoraConfig(**adapter, task_type="SEQ_CLS", init_lora_weights=False)).eval()

    def targets(which):
        if problem == SINGLE:
            return torch.tensor([names.index(rows[i]["label"]) for i in which])
        if problem == MULTI:
            return torch.tensor([[float(n in rows[i]["label"]) for n in names] for i in which], dtype=torch.float64)
        return torch.tensor([rows[i]["label"] for i in which], dtype=torch.float64)

    def forward(which):
        pairs = [rows[i]["text_pair"] for i in which] if joined else None
        inputs = tokenizer([rows[i]["text"] for i in which], pairs, padding=True, truncation=True, max_length=length, return_tensors="pt")
        return tuned(**inputs, labels=targets(which))

    def logits():
        with torch.no_grad():
            return forward(range(len(rows))).logits.float()

    tuned.double()
    settings, before = {"base": base, "task": "classification", "problem": problem, "labels": names}, logits()
    tuned.float()
    record(folder, tuned, tuned, lambda which: forward(which).loss * len(which), settings, lambda: {"final_loss": forward(range(len(rows))).loss.item()})
    save_file({"init": before, "final": logits()}, os.path.join(folder, "logits.safetensors"))
    tuned.float().merge_and_unload().save_pretrained(os.path.join(folder, "merged"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the cases; a case that is there is replaced")
    parser.add_argument("--models", default=os.path.join(os.path.dirname(__file__), "..", "testdata", "encoders"), help="folder of the models")
    cases = {**{name: pairs for name in PAIRS}, **{name: classes for name in CLASSES}}
    parser.add_argument("--only", nargs="+", metavar="CASE", choices=sorted(cases), help="these cases only")
    a = parser.parse_args()
    torch.set_num_threads(1)  # deterministic order of summation
    torch.use_deterministic_algorithms(True)
    for name in a.only or cases:
        folder = os.path.join(a.out, name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        cases[name](name, a.models, folder, 3000 + sum(map(ord, name)))
        size = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(folder) for f in fs)
        print(f"{name:20} {size:8,} bytes")


if __name__ == "__main__":
    sys.exit(main())
