"""Writes golden.json: what transformers' own logits processors keep and the
probabilities that its generate samples from. Run with transformers 5.23:

    python make_golden.py > golden.json
"""
import json

import torch
import transformers
from transformers import GenerationConfig
from transformers.generation.logits_process import (
    LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)


def processors(temperature, top_k, top_p, min_p, repetition_penalty):
    """The conditions and the order of GenerationMixin._get_logits_processor."""
    p = LogitsProcessorList()
    if repetition_penalty not in (None, 1.0):
        p.append(RepetitionPenaltyLogitsProcessor(repetition_penalty))
    if temperature:
        if temperature != 1.0:
            p.append(TemperatureLogitsWarper(temperature))
        if top_k:
            p.append(TopKLogitsWarper(top_k))
        if top_p is not None and top_p < 1.0:
            p.append(TopPLogitsWarper(top_p))
        if min_p is not None:
            p.append(MinPLogitsWarper(min_p))
    return p


def check_order():
    """The list above is the one that generate itself builds."""
    config = GenerationConfig(do_sample=True, temperature=0.7, top_k=5, top_p=0.9, min_p=0.05, repetition_penalty=1.3)
    built = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
    ))._get_logits_processor(config, input_ids_seq_length=3, device="cpu")
    ours = processors(0.7, 5, 0.9, 0.05, 1.3)
    assert [type(p) for p in built] == [type(p) for p in ours], built


check_order()
torch.manual_seed(0)
cases = []
settings = [
    dict(temperature=t, top_k=k, top_p=p, min_p=m, repetition_penalty=r)
    for t, k, p, m, r in [
        (1.0, None, None, None, None), (0.7, None, None, None, None), (2.5, None, None, None, None),
        (1.0, 1, None, None, None), (1.0, 5, None, None, None), (1.0, 100, None, None, None),
        (1.0, None, 0.9, None, None), (1.0, None, 0.5, None, None), (1.0, None, 0.01, None, None), (1.0, None, 0.999, None, None),
        (1.0, None, None, 0.1, None), (1.0, None, None, 1.0, None), (1.0, None, None, 0.003, None),
        (1.0, None, None, None, 1.3), (1.0, None, None, None, 0.6), (0, None, None, None, 1.8), (0, 3, 0.5, 0.2, None),
        (0.8, 20, 0.95, None, 1.1), (0.8, 20, 0.95, 0.05, 1.1), (1.3, 12, 0.8, 0.02, 1.5), (0.6, 20, 0.95, 0.0, None),
        (0.3, None, 0.97, 0.01, 1.05), (1.7, 7, 0.99, 0.3, 0.9),
    ]
]
logits = [
    torch.randn(40) * 3, torch.randn(40) * 0.5 - 20,
    (torch.randn(40) * 2).bfloat16().float(),
    torch.where(torch.rand(40) < 0.5, torch.tensor(-torch.inf), torch.randn(40) * 2),
    torch.tensor([2.0, 2, 1, 1, 1, 0, 0, -1, -1, -2] + [-3.0] * 30),
]
history = [3, 7, 7, 11, 0, 39, 24, 3]
for row, x in enumerate(logits):
    for s in settings:
        if row == 4 and s["top_p"] is not None:
            continue  # equal logits at the edge: which of them stay is not defined
        scores = processors(**s)(torch.tensor([history]), x[None].clone())[0]
        probs = scores.softmax(-1)
        cases.append(dict(
            row=row, **{k: v or 0 for k, v in s.items()},
            greedy=int(scores.argmax()),
            kept=[i for i in range(40) if scores[i] > -torch.inf],
            probs=[round(float(p), 9) for p in probs if p > 0],
        ))
print(json.dumps(dict(
    transformers=transformers.__version__, history=history,
    logits=[[v if v > -1e30 else -1e300 for v in map(float, x)] for x in logits],
), indent=None)[:-1] + ',\n"cases": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]}")
