"""Writes bias.json: the scores that transformers' own processors make of logits with a
bias for single tokens and a repetition penalty, and the token that is then the most
likely one. Run with transformers 5.23:

    python make_bias.py > bias.json
"""
import json

import torch
import transformers
from transformers import GenerationConfig

model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=40, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1))
torch.manual_seed(0)
history = [3, 7, 7, 11, 0, 39, 24, 3]
cases = []
for bias, penalty in [
    ({5: 4.0}, None), ({3: -100.0, 7: 100.0}, None), ({0: 0.3, 39: -0.7, 12: 1e-3}, 1.3),
    ({3: 9.0, 11: -9.0}, 1.8), ({7: 0.1, 24: 2.0}, 0.6),
]:
    config = GenerationConfig(
        sequence_bias=[[[id], b] for id, b in bias.items()], repetition_penalty=penalty)
    processors = model._get_logits_processor(config, input_ids_seq_length=len(history), device="cpu")
    logits = torch.randn(40) * 3
    scores = processors(torch.tensor([history]), logits[None].clone())[0]
    cases.append(dict(bias=bias, repetition_penalty=penalty or 0, logits=logits.tolist(),
                      scores=scores.tolist(), greedy=int(scores.argmax())))
print(json.dumps(dict(transformers=transformers.__version__, history=history))[:-1]
      + ',\n"cases": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]}")
