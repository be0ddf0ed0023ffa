"""Runs one round of lorafuse bench step with torch, transformers and PEFT: forward, backward, clipping and AdamW.

The last argument is the order, as JSON. At bf16 the base is bf16, adapters are f32 (PEFT's default) and products are
computed under torch.autocast(bfloat16). It runs on the kind of device in the order and prints an answer as JSON.
"""
import json
import os
import sys
import time

sys.path = [p for p in sys.path if p]  # do not import modules from the current folder
o = json.loads(sys.argv[-1])
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # keep output of libraries out of the answers
if o["threads"]:
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(o["threads"])
os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def peak_rss():
    try:
        with open("/proc/self/status") as f:
            return 1024 * next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if o["threads"]:
    torch.set_num_threads(o["threads"])
bf16 = o["precision"] == "bf16"
device = "cuda" if o["backend"] == "cuda" else "cpu"
model = AutoModelForCausalLM.from_pretrained(o["model"], dtype=torch.bfloat16 if bf16 else torch.float32, attn_implementation="sdpa")
model = get_peft_model(model, LoraConfig(
    r=o["rank"], lora_alpha=2 * o["rank"], target_modules="all-linear", lora_dropout=0.0, task_type="CAUSAL_LM"))
model.to(device)
parameters = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0)
rows = load_file(o["rows"])["input_ids"].to(device)
model.train()
if o.get("compile"):
    model = torch.compile(model)
seconds, warm_up = [], 2
first = time.time_ns()
for step in range(o["steps"] + warm_up):
    start = time.perf_counter()
    at = step * o["batch"] % len(rows)
    ids = rows[at : at + o["batch"]]
    with torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    float(loss.detach())
    seconds.append(time.perf_counter() - start)
print(json.dumps({"first_step_ns": first, "seconds": seconds, "peak_rss": peak_rss()}), file=out, flush=True)
