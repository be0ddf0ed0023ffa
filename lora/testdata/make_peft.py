"""Writes the folder peft/ beside this script: adapters saved by PEFT for tiny
models, with what PEFT targets and what it merges.

    pip install torch==2.15.0 transformers==5.23.0 peft==0.21.2
    python make_peft.py

peft/MODEL/model.safetensors    the base weights, modules.json: what they are
peft/MODEL/CASE/                adapter_config.json and adapter_model.safetensors
peft/MODEL/CASE/expected.json   targets in order: name, r, alpha, scale
peft/MODEL/CASE/merged.safetensors   the weights that merging changes
"""
import json, os, shutil, warnings
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

warnings.filterwarnings("ignore")
here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peft")


def llama(tied=False):
    torch.manual_seed(1)
    m = LlamaForCausalLM(LlamaConfig(hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, vocab_size=20, attention_bias=True, tie_word_embeddings=tied, max_position_embeddings=16))
    return scaled(m)


def gpt2():
    torch.manual_seed(2)
    return scaled(GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=12, n_positions=8)))


def scaled(m):
    with torch.no_grad():
        for n, p in m.named_parameters():
            p.copy_(torch.randn_like(p) * 0.5)
    return m.eval()


every = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
full = [f"model.layers.{l}.{s}.{n}" for l in range(2) for s, ns in (("self_attn", every[:4]), ("mlp", every[4:])) for n in ns]
cases = {
    "llama": {
        "dora_all": dict(r=2, lora_alpha=3, use_dora=True, target_modules="all-linear"),
        "rslora_patterns": dict(r=4, lora_alpha=6.5, use_rslora=True, target_modules=every,
            rank_pattern={"layers.1.mlp.(?!gate).*": 2, "q_proj": 3, "self_attn.*": 1}, alpha_pattern={"^model.*k_proj": 7, "o_proj": 2.5}),
        "lookahead": dict(r=2, target_modules=r".*\.(?!o_proj|down_proj)[a-z]+_proj", exclude_modules=r".*layers\.0\.mlp.*"),
        "embedding": dict(r=3, lora_alpha=4, target_modules=["embed_tokens", "q_proj", "lm_head"]),
        "embedding_dora": dict(r=2, target_modules=["embed_tokens"], use_dora=True),
        "tokens": dict(r=2, target_modules=["v_proj"], trainable_token_indices=[3, 11, 7]),
        "tokens_dict": dict(r=2, target_modules=["v_proj"], trainable_token_indices={"lm_head": [1, 2], "embed_tokens": [5]}),
        "bias_all": dict(r=2, target_modules=["q_proj", "up_proj"], bias="all"),
        "lora_bias": dict(r=2, target_modules=["q_proj", "k_proj"], lora_bias=True),
        "saved": dict(r=2, target_modules=["k_proj"], modules_to_save=["lm_head", "norm", "layers.0.mlp"]),
        "pissa": dict(r=3, lora_alpha=4, target_modules=["k_proj", "down_proj"], init_lora_weights="pissa"),
        "pissa_dora": dict(r=3, lora_alpha=4, target_modules=["k_proj"], init_lora_weights="pissa", use_dora=True),
        "olora": dict(r=3, lora_alpha=4, target_modules=["k_proj", "down_proj"], init_lora_weights="olora"),
        "many_names": dict(r=1, target_modules=full[:-1] + ["lm_head", "a", "b", "c", "d", "e", "f"]),
        "unicode": dict(r=2, target_modules=["q_proj", "größe", "模"], lora_dropout=1e-5, modules_to_save=["\U0001f600\""], task_type=None),
    },
    "tied": {
        "tokens": dict(r=2, target_modules=["v_proj"], trainable_token_indices=[4, 0]),
        "head": dict(r=2, target_modules=["lm_head"]),
        "saved": dict(r=2, target_modules=["v_proj"], modules_to_save=["embed_tokens"]),
        "head_ensured": dict(r=2, target_modules=["lm_head"], ensure_weight_tying=True),
        "saved_ensured": dict(r=2, target_modules=["v_proj"], modules_to_save=["lm_head"], ensure_weight_tying=True),
    },
    "gpt2": {
        "default": dict(r=2, lora_alpha=3),
        "dora": dict(r=2, lora_alpha=3, target_modules="all-linear", use_dora=True, fan_in_fan_out=True),
        "pissa": dict(r=2, lora_alpha=3, target_modules=["c_attn"], init_lora_weights="pissa", fan_in_fan_out=True),
    },
}


def kind(module):
    return {"Linear": "linear", "Embedding": "embedding", "Conv1D": "conv1d", "LlamaRMSNorm": "norm", "LayerNorm": "norm"}[type(module).__name__]


def modules(m):
    rows = []
    for name, module in m.named_modules():
        w = getattr(module, "weight", None)
        if w is None:
            continue
        shape = list(w.shape)
        row = dict(name=name, kind=kind(module), shape=shape, bias=getattr(module, "bias", None) is not None)
        row["input"] = module is m.get_input_embeddings()
        row["output"] = module is m.get_output_embeddings()
        row["tied"] = row["output"] and w is m.get_input_embeddings().weight
        rows.append(row)
    return rows


def case(make, folder, name, options):
    options = dict(task_type="CAUSAL_LM") | options
    base = make()
    before = {k: v.clone() for k, v in base.state_dict().items()}
    model = get_peft_model(base, LoraConfig(**options))
    model.peft_config["default"].base_model_name_or_path = None
    out = os.path.join(folder, name)
    torch.manual_seed(3)
    with torch.no_grad():
        for n, p in model.named_parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p) * 0.3)
    model.save_pretrained(out)
    os.remove(os.path.join(out, "README.md"))
    targets = []
    for n, m in model.base_model.model.named_modules():
        if isinstance(m, LoraLayer):
            r, alpha, s = m.r["default"], m.lora_alpha["default"], m.scaling["default"]
            targets.append(dict(name=n, r=r, alpha=alpha, scale=s))
    json.dump(dict(targets=targets), open(os.path.join(out, "expected.json"), "w"), indent=1)
    merged = model.merge_and_unload().state_dict()
    changed = {k: v.contiguous().clone() for k, v in merged.items() if not torch.equal(v, before[k])}
    save_file(changed, os.path.join(out, "merged.safetensors"))


for model_name, make in dict(llama=llama, tied=lambda: llama(True), gpt2=gpt2).items():
    folder = os.path.join(here, model_name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    m = make()
    state = {k: v.contiguous().clone() for k, v in m.state_dict().items() if not (model_name != "llama" and k == "lm_head.weight")}
    save_file(state, os.path.join(folder, "model.safetensors"))
    json.dump(dict(type=m.config.model_type, modules=modules(m)), open(os.path.join(folder, "modules.json"), "w"), indent=1)
    for name, options in cases[model_name].items():
        print(model_name, name)
        case(make, folder, name, options)
