#!/usr/bin/env python3
"""Write a randomly initialised model in the Hugging Face layout: config.json, model.safetensors, a byte tokenizer.

Needs numpy only. The same arguments always give the same bytes, so that two programs can be
measured on one model without a download. Weights have a standard deviation of
1/sqrt(columns), which keeps activations of any shape in range.

  python scripts/make_model.py --out small
  python scripts/make_model.py --out tinyllama --hidden 2048 --layers 22 --inter 5632 \\
      --heads 32 --kv-heads 4 --vocab 32000 --dtype bf16
  python scripts/make_model.py --out qwen --arch qwen2 --hidden 896 --layers 24 --inter 4864 \\
      --heads 14 --kv-heads 2 --vocab 151936 --dtype bf16 --tie --shard-mib 256
"""
import argparse
import json
import os
import sys

import numpy as np

CLASSES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
    "mixtral": "MixtralForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "gemma2": "Gemma2ForCausalLM", "olmo2": "Olmo2ForCausalLM",
}
DTYPES = {"f32": ("F32", 4, "float32"), "f16": ("F16", 2, "float16"), "bf16": ("BF16", 2, "bfloat16")}
SPECIALS = ["<|endoftext|>", "<|pad|>"]  # ids 0 (eos) and 1 (pad), as in the config
BLOCK = 1 << 22  # values generated at a time, to bound memory for any model size


def model_config(arch, hidden, layers, inter, heads, kv_heads, vocab, head_dim=None, tie=False, positions=2048, theta=10000.0):
    """The config.json of a model of this shape, as transformers 5 writes it."""
    config = {
        "architectures": [CLASSES[arch]],
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": 0,
        "head_dim": head_dim or hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": inter,
        "max_position_embeddings": positions,
        "model_type": arch,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "pad_token_id": 1,
        "rms_norm_eps": 1e-05 if arch == "llama" else 1e-06,
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "tie_word_embeddings": tie,
        "use_cache": True,
        "vocab_size": vocab,
    }
    if arch == "llama":
        config.update(attention_bias=False, mlp_bias=False)
    if arch == "mistral":
        config.update(sliding_window=None)
    if arch in ("qwen2", "qwen3"):
        config.update(sliding_window=None, use_sliding_window=False, max_window_layers=layers, layer_types=["full_attention"] * layers)
    if arch == "qwen2":
        del config["head_dim"]  # Qwen2 derives it
    if arch == "qwen3":
        config.update(attention_bias=False)
    return config


MOE = {  # MoE module, names of gate, up and down, intermediate size
    "mixtral": lambda config: ("block_sparse_moe", ("w1", "w3", "w2"), config["intermediate_size"]),
    "qwen3_moe": lambda config: ("mlp", ("gate_proj", "up_proj", "down_proj"), config["moe_intermediate_size"]),
}


def experts(config):
    """The number of experts, under the names of transformers 5 and 4."""
    return config.get("num_local_experts") or config["num_experts"]


def has_experts(config, layer):
    """Reports whether a layer has experts instead of an MLP."""
    return config["model_type"] in MOE and layer not in (config.get("mlp_only_layers") or []) and (layer + 1) % config.get("decoder_sparse_step", 1) == 0


def tensors(config):
    """Yields (name, shape) of every tensor that a checkpoint of this config holds, in file order."""
    arch = config["model_type"]
    hidden, inter, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    attention_bias = config.get("attention_bias", False)
    bias = {"q": attention_bias or arch == "qwen2", "o": attention_bias, "mlp": config.get("mlp_bias", False)}

    def linear(name, rows, columns, with_bias):
        yield name + ".weight", (rows, columns)
        if with_bias:
            yield name + ".bias", (rows,)

    yield "model.embed_tokens.weight", (vocab, hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        if arch != "olmo2":
            yield layer + "input_layernorm.weight", (hidden,)
        yield from linear(layer + "self_attn.q_proj", heads * head_dim, hidden, bias["q"])
        yield from linear(layer + "self_attn.k_proj", kv_heads * head_dim, hidden, bias["q"])
        yield from linear(layer + "self_attn.v_proj", kv_heads * head_dim, hidden, bias["q"])
        yield from linear(layer + "self_attn.o_proj", hidden, heads * head_dim, bias["o"])
        if arch in ("qwen3", "gemma3_text", "qwen3_moe"):
            yield layer + "self_attn.q_norm.weight", (head_dim,)
            yield layer + "self_attn.k_norm.weight", (head_dim,)
        if arch == "olmo2":
            yield layer + "self_attn.q_norm.weight", (heads * head_dim,)
            yield layer + "self_attn.k_norm.weight", (kv_heads * head_dim,)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        if arch in ("gemma2", "gemma3_text"):
            yield layer + "pre_feedforward_layernorm.weight", (hidden,)
        if arch in ("gemma2", "gemma3_text", "olmo2"):
            yield layer + "post_feedforward_layernorm.weight", (hidden,)
        if has_experts(config, i):
            block, names, units = MOE[arch](config)
            yield layer + block + ".gate.weight", (experts(config), hidden)
            for e in range(experts(config)):
                for name, shape in zip(names, ((units, hidden), (units, hidden), (hidden, units))):
                    yield f"{layer}{block}.experts.{e}.{name}.weight", shape
            continue
        yield from linear(layer + "mlp.gate_proj", inter, hidden, bias["mlp"])
        yield from linear(layer + "mlp.up_proj", inter, hidden, bias["mlp"])
        yield from linear(layer + "mlp.down_proj", hidden, inter, bias["mlp"])
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (vocab, hidden)


def values(name, shape, seed, index):
    """Yields a tensor's values as float32 blocks. Each tensor has its own stream, so shards change nothing."""
    draw = np.random.Generator(np.random.Philox(key=[seed, index]))
    count = int(np.prod(shape))
    if len(shape) == 2 and "_norm." not in name:
        mean, std = 0.0, shape[1] ** -0.5
    elif name.endswith(".bias"):
        mean, std = 0.0, 0.1
    else:  # a norm's weight: near one but never one, so that tests detect a missing weight
        mean, std = 1.0, 0.1
    for start in range(0, count, BLOCK):
        block = draw.standard_normal(min(BLOCK, count - start), dtype=np.float32)
        yield block * np.float32(std) + np.float32(mean)


def encode(block, dtype):
    """Rounds float32 values to nearest even in the stored type; returns little-endian bytes."""
    if dtype == "bf16":
        bits = block.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    return block.astype("<f2" if dtype == "f16" else "<f4").tobytes()


def write_safetensors(path, entries, dtype, seed):
    """Writes entries [(index, name, shape)] as one safetensors file, block by block."""
    tag, size, _ = DTYPES[dtype]
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for _, name, shape in entries:
        end = offset + size * int(np.prod(shape))
        header[name] = {"dtype": tag, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for index, name, shape in entries:
            for block in values(name, shape, seed, index):
                file.write(encode(block, dtype))
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)
    return offset


def write_json(path, data):
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(data, file, indent=2, sort_keys=True, ensure_ascii=False)
        file.write("\n")
    os.replace(path + ".tmp", path)


def byte_alphabet():
    """GPT-2's printable character for each of the 256 bytes, which byte-level tokenizers use."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


def write_tokenizer(directory, vocab, positions):
    """A byte-level tokenizer without merges: one id per byte; the ids above are names that no text gives."""
    names = SPECIALS + byte_alphabet()
    names += [f"<|unused{i}|>" for i in range(len(names), vocab)]
    special = [
        {"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, name in enumerate(SPECIALS)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    write_json(os.path.join(directory, "tokenizer.json"), {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {name: i for i, name in enumerate(names)}, "merges": [],
        },
    })
    write_json(os.path.join(directory, "tokenizer_config.json"), {
        "eos_token": SPECIALS[0], "pad_token": SPECIALS[1], "model_max_length": positions, "tokenizer_class": "PreTrainedTokenizerFast",
    })


def write_model(directory, config, dtype="f32", seed=0, shard_bytes=0, style=5, known=None):
    """Writes config.json and the weights of a random model; returns the bytes of the weights.

    style 5 names the dtype as transformers 5 does, style 4 as its predecessor did. known lists (name, shape) of a model
    whose tensors this script does not know.
    """
    os.makedirs(directory, exist_ok=True)
    _, size, long_name = DTYPES[dtype]
    write_json(os.path.join(directory, "config.json"), {**config, ("dtype" if style == 5 else "torch_dtype"): long_name})
    shards, used = [[]], 0
    for index, (name, shape) in enumerate(known or tensors(config)):
        length = size * int(np.prod(shape))
        if shard_bytes and shards[-1] and used + length > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append((index, name, shape))
        used += length
    if len(shards) == 1:
        return write_safetensors(os.path.join(directory, "model.safetensors"), shards[0], dtype, seed)
    total, where = 0, {}
    for i, entries in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        total += write_safetensors(os.path.join(directory, file), entries, dtype, seed)
        where.update({name: file for _, name, _ in entries})
    write_json(os.path.join(directory, "model.safetensors.index.json"), {"metadata": {"total_size": total}, "weight_map": where})
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder to write; must not hold a model yet")
    parser.add_argument("--arch", default="llama", choices=sorted(CLASSES.keys() - MOE.keys()))
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--inter", type=int, default=1408)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, help="default: hidden / heads")
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--positions", type=int, default=2048, help="max_position_embeddings")
    parser.add_argument("--dtype", default="f32", choices=sorted(DTYPES))
    parser.add_argument("--tie", action="store_true", help="tie the output head to the embeddings")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard-mib", type=int, default=0, help="split the weights into files of at most this size")
    a = parser.parse_args()
    for name in ("hidden", "layers", "inter", "heads", "kv_heads", "vocab", "positions"):
        if getattr(a, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be positive, got {getattr(a, name)}")
    if a.head_dim is None and a.hidden % a.heads:
        parser.error(f"--hidden {a.hidden} is not a multiple of --heads {a.heads}; give --head-dim")
    if (a.head_dim or a.hidden // a.heads) % 2:
        parser.error(f"the head size must be even for rotary positions, got {a.head_dim or a.hidden // a.heads}")
    if a.heads % a.kv_heads:
        parser.error(f"--heads {a.heads} is not a multiple of --kv-heads {a.kv_heads}")
    if a.arch == "qwen2" and a.head_dim not in (None, a.hidden // a.heads):
        parser.error("qwen2 has no head_dim of its own: it is hidden / heads")
    if os.path.exists(os.path.join(a.out, "config.json")):
        parser.error(f"{a.out} already holds a model (config.json); remove it or choose another folder")
    config = model_config(a.arch, a.hidden, a.layers, a.inter, a.heads, a.kv_heads, a.vocab, a.head_dim, a.tie, a.positions)
    size = write_model(a.out, config, a.dtype, a.seed, a.shard_mib << 20)
    with_text = a.vocab >= len(SPECIALS) + 256
    if with_text:
        write_tokenizer(a.out, a.vocab, a.positions)
    parameters = size // DTYPES[a.dtype][1]
    print(f"{a.out}: {a.arch}, {parameters:,} parameters, {size / 2**20:.1f} MiB {a.dtype}" + ("" if with_text else ", no tokenizer (vocab below 258)"))


if __name__ == "__main__":
    sys.exit(main())
