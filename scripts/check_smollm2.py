#!/usr/bin/env python3
"""Write the logits of a Llama in a GGUF file, by transformers with weights that the gguf package dequantises.

`lorafuse compare` reads the output.

  pip install gguf torch transformers && python scripts/check_smollm2.py MODEL.gguf golden.safetensors
"""
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

path, out = sys.argv[1:]
reader = gguf.GGUFReader(path)
key = lambda name: reader.fields["llama." + name].contents()
tensors = {t.name: np.array(gguf.quants.dequantize(t.data, t.tensor_type), np.float32) for t in reader.tensors}
heads, kv = key("attention.head_count"), key("attention.head_count_kv")
config = LlamaConfig(
    vocab_size=len(tensors["token_embd.weight"]), hidden_size=key("embedding_length"), intermediate_size=key("feed_forward_length"), num_hidden_layers=key("block_count"),
    num_attention_heads=heads, num_key_value_heads=kv, rms_norm_eps=key("attention.layer_norm_rms_epsilon"), max_position_embeddings=key("context_length"),
    rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")}, tie_word_embeddings="output.weight" not in tensors, attn_implementation="eager",
)


def halves(x, n):
    """llama.cpp rotates neighbouring rows of q and k, transformers the halves of a head."""
    return x.reshape(n, -1, 2, x.shape[-1]).swapaxes(1, 2).reshape(x.shape)


names = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
state = {"model.embed_tokens.weight": tensors.pop("token_embd.weight"), "model.norm.weight": tensors.pop("output_norm.weight")}
state["lm_head.weight"] = tensors.pop("output.weight", state["model.embed_tokens.weight"])
for name, x in tensors.items():
    _, i, module, _ = name.split(".")
    x = halves(x, heads) if module == "attn_q" else halves(x, kv) if module == "attn_k" else x
    state[f"model.layers.{i}.{names[module]}.weight"] = x
model = LlamaForCausalLM(config).eval().to(torch.float32)
model.load_state_dict({name: torch.from_numpy(x) for name, x in state.items()}, strict=True)
ids = torch.randint(0, config.vocab_size, (1, 24), generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    save_file({"input_ids": ids, "logits": model(ids).logits}, out)
