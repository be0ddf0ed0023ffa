#!/usr/bin/env python3
"""Write tiny random models of many configurations with PyTorch's logits and greedy tokens for them.

Every case is a folder with config.json, its other spelling (config.transformers4.json, for linear config.transformers5.json),
model.safetensors and golden.safetensors: `input_ids` [rows, length], `logits` (f32, computed in f32 from the
stored weights, or in f64 for cases that set "float64" since PyTorch's f32 is off by more than the limit of the tests), `generated` (the first 8 ids of row 0 and 8 greedy ones), for longrope
`crossing` (a longer prompt and 8 greedy ids). The same command gives the same bytes.

  python scripts/make_model_goldens.py --out testdata/extra
  python scripts/make_model_goldens.py --out testdata/extra --only yarn-mscale dynamic
"""
import argparse
import os
import shutil
import sys

import torch
import transformers
from transformers import AutoConfig

import make_model
import model_cases
import reference
import wrapper_cases

LENGTH = 20
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}

# name: (architecture, changes of SHAPE, stored dtype, style of config.json)
SHAPE = {
    "vocab_size": 96, "hidden_size": 48, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 3,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}
CASES = {
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}, "bf16", 5),
    "llama-head-dim": ("llama", {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 20, "rms_norm_eps": 1e-3}, "bf16", 5),
    "llama-f16": ("llama", {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}, "f16", 5),
    "llama-gelu": ("llama", {"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True}, "bf16", 5),
    "llama-f32": ("llama", {"vocab_size": 80, "hidden_size": 24, "head_dim": 6, "intermediate_size": 36}, "f32", 5),
    "llama3-rope-tied": ("llama", {"rope_parameters": {**LLAMA3, "rope_theta": 500.0}, "tie_word_embeddings": True}, "bf16", 5),
    "linear": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 1000.0}, "tie_word_embeddings": True}, "bf16", 4),
    "dynamic": ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 100.0}, "max_position_embeddings": 16}, "bf16", 5),
    "yarn-mscale": ("llama", {"rope_parameters": {**YARN, "rope_theta": 100.0, "mscale": 0.7, "mscale_all_dim": 1.4}, "tie_word_embeddings": True}, "bf16", 5),
    "yarn-attention-factor": ("llama", {"rope_parameters": {**YARN, "rope_theta": 100.0, "attention_factor": 1.3, "beta_fast": 3.0, "beta_slow": 0.1}, "num_attention_heads": 2, "head_dim": 16}, "bf16", 5),
    "yarn-untruncated": ("qwen2", {"rope_parameters": {**YARN, "rope_theta": 100.0, "beta_fast": 2.0, "beta_slow": 0.2, "truncate": False}, "num_attention_heads": 3, "tie_word_embeddings": True}, "bf16", 5),
    "mistral-no-window": ("mistral", {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": None, "sliding_window": None, "tie_word_embeddings": True}, "bf16", 5),
    "mistral-window": ("mistral", {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 10, "sliding_window": 3}, "bf16", 5),
    "qwen2-mixed-windows": ("qwen2", {"num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 16, "use_sliding_window": True, "max_window_layers": 1, "sliding_window": 4, "tie_word_embeddings": True}, "bf16", 5),
    "gemma3-linear": ("gemma3_text", {
        "seed": 1100, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 10, "hidden_size": 40, "query_pre_attn_scalar": 24,
        "sliding_window": 5, "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
        "tie_word_embeddings": True, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 2000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    }, "bf16", 4),
    "mixtral": ("mixtral", {
        "seed": 1101, "hidden_size": 32, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 2,
        "sliding_window": 7, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    }, "bf16", 4),
    "qwen3-moe": ("qwen3_moe", {
        "seed": 1102, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 6, "num_experts_per_tok": 3,
        "moe_intermediate_size": 20, "decoder_sparse_step": 2, "mlp_only_layers": [3], "norm_topk_prob": False, "attention_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }, "f16", 4),
    "qwen3-moe-normalized": ("qwen3_moe", {
        "seed": 1103, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 20, "norm_topk_prob": True, "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }, "f32", 5),
    "gemma2": ("gemma2", {
        "seed": 1104, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "hidden_size": 40, "query_pre_attn_scalar": 24,
        "sliding_window": 5, "attn_logit_softcapping": 2.5, "final_logit_softcapping": 6.0, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    }, "bf16", 5),
    "gemma2-untied": ("gemma2", {
        "seed": 1105, "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 14, "hidden_size": 36, "query_pre_attn_scalar": 9,
        "sliding_window": 3, "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"], "attention_bias": True,
        "attn_logit_softcapping": 4.0, "final_logit_softcapping": None, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e3},
    }, "f32", 5),
    "olmo2": ("olmo2", {
        "seed": 1106, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "hidden_size": 40, "num_hidden_layers": 3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    }, "f32", 4),
    "olmo2-tied": ("olmo2", {
        "seed": 1107, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10, "attention_bias": True, "hidden_size": 42, "tie_word_embeddings": True,
        "rms_norm_eps": 1e-3, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 100.0},
    }, "bf16", 5),
    "qwen3-biases": ("qwen3", {"attention_bias": True, "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, "bf16", 5),
    **wrapper_cases.CASES,
    **model_cases.CASES,
}
CLASSES = {**make_model.CLASSES, **wrapper_cases.CLASSES, **model_cases.CLASSES}


def transformers4(config):
    """The same config as transformers 4 wrote it: rope_theta, rope_scaling, torch_dtype, no layer_types."""
    old = {k: v for k, v in config.items() if k not in ("rope_parameters", "dtype", "layer_types")}
    scaling = config.get("rope_parameters")
    if scaling is None:  # positions are learned
        return {**old, "torch_dtype": config["dtype"], "transformers_version": "4.46.0"}
    if config["model_type"] == "gemma4_text":  # which has no older spelling
        return {**{k: v for k, v in config.items() if k != "dtype"}, "torch_dtype": config["dtype"]}
    if "full_attention" in scaling:
        old["rope_local_base_freq"] = scaling["sliding_attention"]["rope_theta"]
        old["sliding_window_pattern"] = config["layer_types"].index("full_attention") + 1
        scaling = scaling["full_attention"]
    scaling = dict(scaling)
    old["rope_theta"] = scaling.pop("rope_theta")
    if "partial_rotary_factor" in scaling:
        old["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
    if scaling["rope_type"] == "linear" and "rope_local_base_freq" not in old:
        scaling["type"] = scaling.pop("rope_type")  # the oldest spelling
    if config["model_type"] == "gemma2" and "full_attention" in config["layer_types"][::2]:
        old["layer_types"] = config["layer_types"]  # later versions wrote it; by default every other layer slides
    if config["model_type"] in ("qwen3_moe", "qwen3_vl_moe_text"):
        old["num_experts"] = old.pop("num_local_experts")
    old["rope_scaling"] = None if scaling == {"rope_type": "default"} else scaling
    if "mrope_section" in scaling and scaling["rope_type"] == "default":
        scaling["type"] = "mrope"
    old.update(torch_dtype=config["dtype"], transformers_version="4.46.0")
    return old


def whole_of_transformers4(config):
    """The config of a multimodal model: Qwen's had the text model's keys at the top level."""
    dtype = {"torch_dtype": config["dtype"], "transformers_version": "4.46.0"}
    text = transformers4({**config["text_config"], "dtype": config["dtype"]})
    whole = {k: v for k, v in config.items() if k not in ("text_config", "dtype")}
    if config["model_type"] in ("qwen2_vl", "qwen2_5_vl"):
        del text["model_type"]
        return {**text, **whole, **dtype}
    return {**whole, **dtype, "text_config": text}


def listed(config):
    """[(index, name, shape)] of the tensors of a model, as its class in transformers has them."""
    settings = AutoConfig.for_model(**config)
    with torch.device("meta"):
        model = getattr(transformers, config["architectures"][0])(settings)
    stored = model.state_dict()
    tensors = [*model.named_parameters(), *((name, b) for name, b in model.named_buffers() if name in stored)]
    return [(i, name, tuple(t.shape)) for i, (name, t) in enumerate(tensors)]


def former_name(name, arch):
    """The name of a tensor in a file of transformers 4."""
    if arch in ("qwen2_vl", "qwen2_5_vl"):
        return name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
    if arch in ("qwen3_vl", "qwen3_vl_moe"):
        return name
    if name.startswith("lm_head"):
        return "language_model." + name
    return name.replace("model.language_model.", "language_model.model.").replace("model.vision", "vision").replace("model.multi", "multi").replace("model.image_newline", "image_newline")


def write(folder, config, dtype, seed, style, transposed):
    """Writes the weights of a model that make_model does not know."""
    os.makedirs(folder, exist_ok=True)
    entries = listed(config)
    if "text_config" in config and style == 4:
        entries = [(i, former_name(name, config["model_type"]), shape) for i, name, shape in entries]
    if transposed:
        entries = [(i, name, (shape[0], shape[2], shape[1]) if ".experts." in name else shape) for i, name, shape in entries]
    make_model.write_safetensors(os.path.join(folder, "model.safetensors"), entries, dtype, seed)


def logits_and_tokens(directory, ids):
    """(logits, generated, smallest gap between the two best tokens along the greedy path)."""
    model = reference.load_model(directory)
    model.generation_config.eos_token_id = None  # always generate eight tokens
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    return logits, *greedy(model, ids[:1, :8])


def exact_logits(directory, ids):
    """Logits computed in f64, as f32."""
    model = reference.load_model(directory).double()
    model.set_experts_implementation("eager")  # the others have no f64
    with torch.no_grad():
        return model(input_ids=ids).logits.float()


def greedy(model, prompt):
    """(prompt and 8 greedy tokens, smallest gap between the two best tokens)."""
    with torch.no_grad():
        out = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False,
            return_dict_in_generate=True, output_scores=True,
        )
    best = torch.stack(out.scores).topk(2).values
    return out.sequences, float((best[..., 0] - best[..., 1]).min())


def crossing(folder, seed):
    """8 greedy tokens that cross the length at which the frequencies of longrope change, or nothing.

    They differ from those of a model that does not read the text again at that length.
    """
    model = reference.load_model(folder)
    original, draw = getattr(model.config, "original_max_position_embeddings", LENGTH), torch.Generator().manual_seed(seed)
    if original >= LENGTH:
        return {}
    model.generation_config.eos_token_id = None
    again = type(model).prepare_inputs_for_generation
    for _ in range(100):
        prompt = torch.randint(2, model.config.vocab_size, (1, original - 4), generator=draw)
        tokens, gap = greedy(model, prompt)
        model.prepare_inputs_for_generation = transformers.GenerationMixin.prepare_inputs_for_generation.__get__(model)
        other, _ = greedy(model, prompt)
        model.prepare_inputs_for_generation = again.__get__(model)
        if gap > 1e-3 and not torch.equal(tokens, other):
            return {"crossing": tokens}
    reference.fail(f"{folder}: no text needs to be read again")


def make(name, out):
    arch, changes, dtype, style = CASES[name]
    fields = {**SHAPE, **(model_cases.SHAPE if name in model_cases.CASES else {}), **changes}
    # The seeds of the first cases follow from their names; later cases set theirs.
    first = sorted(n for n, case in CASES.items() if "seed" not in case[1])
    seed, changed = fields.pop("seed", None) or 1000 + first.index(name), fields.pop("old", {})
    if arch in ("qwen2", "qwen2_vl", "qwen2_5_vl") or arch in ("olmo2", *model_cases.CLASSES) and fields["head_dim"] is None:  # which accept null as a size
        fields.pop("head_dim")
    float64 = fields.pop("float64", False)
    fields.update(bos_token_id=None, eos_token_id=0, pad_token_id=1)
    whole = fields.pop("whole", None)
    transposed = whole is not None and whole.get("transposed")
    if whole is not None:
        if "text" in whole:
            fields["model_type"] = whole["text"]
        fields = {"text_config": fields, **{k: v for k, v in whole.items() if k not in ("text", "transposed")}}
    config = AutoConfig.for_model(arch, architectures=[CLASSES[arch]], **fields).to_diff_dict()
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    new = {k: config[k] for k in sorted(config) if not k.startswith("_")}
    new["dtype"] = make_model.DTYPES[dtype][2]
    new.update({k: None for k, v in fields.items() if v is None})  # files may contain explicit nulls
    if arch in make_model.CLASSES:
        make_model.write_model(folder, {k: v for k, v in new.items() if k != "dtype"}, dtype, seed)
    elif arch in model_cases.CLASSES:
        make_model.write_model(folder, {k: v for k, v in new.items() if k != "dtype"}, dtype, seed, known=[tensor[1:] for tensor in listed(new)])
    else:
        write(folder, new, dtype, seed, style, transposed)
    old = transformers4(new) if whole is None else whole_of_transformers4(new)
    old = {k: v for k, v in {**old, **changed}.items() if v is not None or k in new and k not in changed}
    main, other = (new, old) if style == 5 else (old, new)
    vocab = (fields if whole is None else fields["text_config"])["vocab_size"]
    ids = torch.randint(2, vocab, (2, LENGTH), generator=torch.Generator().manual_seed(seed))
    results = []
    for written in (other, main):  # both spellings must mean the same model
        make_model.write_json(os.path.join(folder, "config.json"), written)
        results.append(logits_and_tokens(folder, ids))
    (logits, generated, gap), (again, _, _) = results
    if not torch.equal(logits, again):
        reference.fail(f"{name}: the two spellings of the config differ by {float((logits - again).abs().max()):.3g}")
    if gap < 1e-3:
        reference.fail(f"{name}: greedy tokens hang on a gap of {gap:.2g}; change the seed")
    make_model.write_json(os.path.join(folder, f"config.transformers{9 - style}.json"), other)
    if float64:
        logits = exact_logits(folder, ids)
    reference.save_tensors(os.path.join(folder, "golden.safetensors"), {"input_ids": ids, "logits": logits, "generated": generated, **crossing(folder, seed)})
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f"{name:22} {arch:8} {dtype:4} {size:7,} bytes, largest |logit| {logits.abs().max():.3f}, greedy gap {gap:.3f}")
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the cases; a case that is there is replaced")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="these cases only")
    a = parser.parse_args()
    unknown = set(a.only or []) - CASES.keys()
    if unknown:
        parser.error(f"unknown case {sorted(unknown)}; known: {', '.join(CASES)}")

    torch.set_num_threads(1)  # deterministic order of summation
    torch.use_deterministic_algorithms(True)
    total = sum(make(name, a.out) for name in a.only or CASES)
    print(f"total {total:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
