"""Writes testdata/preference: fine-tuning by preferences (DPO) as torch, transformers and PEFT compute it from its formula.

    pip install -r scripts/requirements.txt
    python scripts/make_preference_goldens.py testdata

The loss of a row is -log sigmoid(beta * ((log p(chosen) - log ref(chosen)) - (log p(rejected) - log ref(rejected)))), its
mean over the rows of a step as in TRL's DPOTrainer (loss_type sigmoid); ref is the model with the adapter disabled. Each
folder has the rows, the adapter that training begins with, golden.json (log-likelihoods of the reference, and of each step
loss, norm of the gradient before clipping and rewards, as TRL names them), the gradients of the first step and the adapter
after the last. Answers are tokenised behind their prompt and end with the end token.
"""

import json
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

DATA = Path(sys.argv[1])
BETA, LR, DECAY, NORM = 0.3, 2e-3, 0.01, 1.0
BATCH, ACCUMULATION, STEPS = 2, 2, 3
ROWS = [
    ("the sky is", " blue and wide", " green"),
    ("two and two", " are four", " are five, or perhaps some other number"),
    ("a long prompt that goes on for a while, and then", " ends", " does not end"),
    ("yes or no?", " yes", " no"),
    ("what comes after one", " two comes after one", " three"),
    ("say nothing", "", " something"),
]
CASES = {
    "lora": ("llama", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "head": ("llama", dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "lm_head"])),
    "dora": ("gemma3", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], use_dora=True)),
}


def likelihood(model, prompt, answer):
    """The logarithm of the probability of an answer."""
    logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name, (base, config) in CASES.items():
        path, out = DATA / "lm" / base / "model", DATA / "preference" / name
        out.mkdir(parents=True, exist_ok=True)
        tok = AutoTokenizer.from_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **config))
        for key, p in model.named_parameters():
            if "lora_B" in key:
                torch.nn.init.normal_(p, std=0.05)
        model.save_pretrained(out / "init", save_embedding_layers=False)
        (out / "init" / "README.md").unlink(missing_ok=True)
        trained = {k: p for k, p in model.named_parameters() if p.requires_grad}
        rows = []
        for prompt, *answers in ROWS:
            rows.append((tok(prompt).input_ids, [tok(a, add_special_tokens=False).input_ids + [tok.eos_token_id] for a in answers]))
        (out / "rows.jsonl").write_text("".join(json.dumps({"prompt": p, "chosen": c, "rejected": r}) + "\n" for p, c, r in ROWS))
        with torch.no_grad(), model.disable_adapter():
            reference = [[likelihood(model, p, a).item() for a in answers] for p, answers in rows]
        adamw = torch.optim.AdamW(trained.values(), lr=LR, weight_decay=DECAY)
        steps, at = [], 0
        for step in range(STEPS):
            batch = list(range(at, min(at + BATCH * ACCUMULATION, len(rows))))
            at = 0 if batch[-1] + 1 == len(rows) else batch[-1] + 1
            adamw.zero_grad()
            loss, chosen, rejected = 0, [], []
            for i in batch:
                rewards = [BETA * (likelihood(model, rows[i][0], a) - ref) for a, ref in zip(rows[i][1], reference[i])]
                loss = loss - torch.nn.functional.logsigmoid(rewards[0] - rewards[1]) / len(batch)
                chosen.append(rewards[0].item())
                rejected.append(rewards[1].item())
            loss.backward()
            if step == 0:
                save_file({k: p.grad.clone() for k, p in trained.items()}, out / "grads_step0.safetensors")
            norm = torch.nn.utils.clip_grad_norm_(trained.values(), NORM)
            adamw.step()
            n = len(batch)
            steps.append({"loss": loss.item(), "grad_norm": norm.item(), "rewards/chosen": sum(chosen) / n, "rewards/rejected": sum(rejected) / n,
                          "rewards/margins": sum(chosen) / n - sum(rejected) / n, "rewards/accuracies": sum(c > r for c, r in zip(chosen, rejected)) / n})
        final = get_peft_model_state_dict(model, save_embedding_layers=False)
        save_file({k: v.contiguous() for k, v in final.items()}, out / "final.safetensors")
        golden = {"base": base, "beta": BETA, "lr": LR, "weight_decay": DECAY, "max_grad_norm": NORM, "batch_size": BATCH,
                  "gradient_accumulation_steps": ACCUMULATION, "reference": reference, "steps": steps}
        (out / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
        print(name, steps)


main()
