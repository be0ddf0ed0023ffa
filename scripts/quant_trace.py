"""Training runs of PEFT on quantised models, for the scripts that write those."""
import json
import os

import torch
from peft import LoraConfig, get_peft_model

import make_model
import reference

HYPERPARAMETERS = {
    "steps": 10, "lr": 0.005, "betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0.1, "max_grad_norm": 0.1,
    "scheduler": "cosine", "warmup_steps": 2,
}


def record(model, folder, config, seed):
    """Ten steps of PEFT on a model; writes folder/train."""
    path = lambda *parts: os.path.join(folder, "train", *parts)
    torch.manual_seed(seed)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **config))
    for p in reference.trainable(model).values():
        p.data = p.data.float()

    def save(name):
        model.save_pretrained(path(name), save_embedding_layers=False)
        os.remove(path(name, "README.md"))
        file = path(name, "adapter_config.json")
        with open(file, encoding="utf-8") as f:
            saved = json.load(f)
        saved["target_modules"].sort()
        saved["base_model_name_or_path"] = "../.."
        make_model.write_json(file, saved)

    save("init")
    parameters = reference.trainable(model)
    h = HYPERPARAMETERS
    optimizer = reference.Optimizer(parameters.values(), h["steps"], h["lr"], h["warmup_steps"], h["weight_decay"], h["max_grad_norm"], h["betas"], h["eps"])
    ids = torch.randint(2, model.config.vocab_size, (5, 2, 12), generator=torch.Generator().manual_seed(seed))
    labels = ids.clone()
    labels[:, :, :3] = reference.IGNORE
    reference.save_tensors(path("batches.safetensors"), {"input_ids": ids, "labels": labels})
    model.train()
    trace = []
    for step in range(h["steps"]):
        batch = step % len(ids)
        loss = model(input_ids=ids[batch], labels=labels[batch]).loss
        loss.backward()
        if step == 0:
            reference.save_tensors(path("grads_step0.safetensors"), {n: p.grad for n, p in parameters.items()})
        lr = optimizer.lr
        trace.append({"step": step, "batch": batch, "loss": float(loss.detach()), "grad_norm": optimizer.step(), "lr": lr})
    reference.save_json(path("trace.json"), {"hyperparameters": h, "trace": trace})
    save("final")
