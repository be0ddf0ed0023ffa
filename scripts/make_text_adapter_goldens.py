"""Writes internal/lora/dialects/testdata/text: one adapter of testdata/lm/llama/model in the forms of other tools.

peft/               the adapter as PEFT has it
lora.gguf           by the gguf package, with the tensors that llama.cpp's convert_lora_to_gguf.py writes: the rows of B
                    of q and k are reordered as permute of convert_hf_to_gguf.py does
lora-f16.gguf       the same in f16, without adapter.lora.alpha
torchtune/          adapter_model.bin with the keys of torchtune, and adapter_config.json; the script checks that
                    tune_to_peft_adapter_weights of torchtune returns PEFT's tensors
mlx-names.safetensors  lora_a [in, rank] and lora_b [rank, out], with lora_alpha in the metadata

    python scripts/make_text_adapter_goldens.py
"""
import argparse
import importlib.util
import json
import pathlib

import gguf
import torch
from safetensors.torch import save_file

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="testdata/lm/llama/model")
parser.add_argument("--out", default="internal/lora/dialects/testdata/text")
args = parser.parse_args()
out = pathlib.Path(args.out)
config = json.loads((pathlib.Path(args.model) / "config.json").read_text())
heads, kv, dim, size = config["num_attention_heads"], config["num_key_value_heads"], config["hidden_size"], config["head_dim"]
RANK, ALPHA = 4, 6.0
shapes = {
    "self_attn.q_proj": (heads * size, dim), "self_attn.k_proj": (kv * size, dim), "self_attn.v_proj": (kv * size, dim),
    "self_attn.o_proj": (dim, heads * size), "mlp.down_proj": (dim, config["intermediate_size"]),
}
torch.manual_seed(11)
layers = {}
for n in range(config["num_hidden_layers"]):
    for name, (rows, columns) in shapes.items():
        layers[f"model.layers.{n}.{name}"] = torch.randn(RANK, columns), torch.randn(rows, RANK) / 8


def count(name):
    return heads if name.endswith("q_proj") else kv if name.endswith("k_proj") else 0


def permute(b, n):
    if n == 0:
        return b
    return b.reshape(n, 2, b.shape[0] // n // 2, -1).swapaxes(1, 2).reshape(b.shape).contiguous()


peft = {}
for name, (a, b) in layers.items():
    peft[f"base_model.model.{name}.lora_A.weight"], peft[f"base_model.model.{name}.lora_B.weight"] = a, b
(out / "peft").mkdir(parents=True, exist_ok=True)
save_file(peft, out / "peft/adapter_model.safetensors", metadata={"format": "pt"})
(out / "peft/adapter_config.json").write_text(json.dumps(
    {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": [n.split(".")[1] for n in shapes]}, indent=2))

names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.down_proj": "ffn_down"}
for file, kind in {"lora.gguf": torch.float32, "lora-f16.gguf": torch.float16}.items():
    w = gguf.GGUFWriter(out / file, "llama")
    w.add_type(gguf.GGUFType.ADAPTER)
    w.add_string(gguf.Keys.Adapter.TYPE, "lora")
    if kind == torch.float32:
        w.add_float32(gguf.Keys.Adapter.LORA_ALPHA, ALPHA)
    for name, (a, b) in layers.items():
        _, _, n, rest = name.split(".", 3)
        w.add_tensor(f"blk.{n}.{names[rest]}.weight.lora_a", a.to(kind).numpy())
        w.add_tensor(f"blk.{n}.{names[rest]}.weight.lora_b", permute(b, count(name)).to(kind).numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()

# The module alone: the package imports what it does not need.
spec = importlib.util.find_spec("torchtune")
source = (pathlib.Path(spec.submodule_search_locations[0]) / "models/convert_weights.py").read_text()
convert = {}
exec(compile(source, "convert_weights.py", "exec"), convert)
tune = {}
for name, (a, b) in layers.items():
    key = convert["get_mapped_key"](name + ".weight", convert["_FROM_HF"]).removesuffix(".weight")
    tune[key + ".lora_a.weight"], tune[key + ".lora_b.weight"] = a, permute(b, count(name))
back = convert["tune_to_peft_adapter_weights"](dict(tune), heads, kv, dim, size)
assert back.keys() == peft.keys() and all(torch.equal(back[k], peft[k]) for k in peft)
(out / "torchtune").mkdir(exist_ok=True)
torch.save(tune, out / "torchtune/adapter_model.bin")
(out / "torchtune/adapter_config.json").write_text(json.dumps(
    {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"]}, indent=2))

mlx = {}
for name, (a, b) in layers.items():
    mlx[name + ".lora_a"], mlx[name + ".lora_b"] = a.T.contiguous(), b.T.contiguous()
save_file(mlx, out / "mlx-names.safetensors", metadata={"lora_alpha": str(ALPHA)})
