"""Writes testdata/text: text encoders of diffusion pipelines in forms that the shared fixtures lack.

Usage: python scripts/make_text_goldens.py  (torch, transformers, peft, safetensors)
"""

import json
import pathlib

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    CLIPTextConfig,
    CLIPTextModelWithProjection,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    T5Config,
    T5EncoderModel,
)

OUT = pathlib.Path(__file__).parent.parent / "testdata" / "text"


def adapted(name, model, targets, **inputs):
    """The last hidden states with a PEFT adapter, which is saved next to the model."""
    peft = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, target_modules=targets, init_lora_weights=False)).eval()
    out = peft(**inputs, output_hidden_states=True)
    peft.save_pretrained(OUT / name / "adapter")
    (OUT / name / "adapter" / "README.md").unlink(missing_ok=True)
    peft.unload()
    last = out.last_hidden_state if hasattr(out, "last_hidden_state") else out.hidden_states[-1]
    return {"adapter.last": last.contiguous()}


def write(name, model, tensors, dtype=None):
    folder = OUT / name
    model.save_pretrained(folder)
    if dtype is not None:
        weights = {k: v.to(dtype) for k, v in load_file(folder / "model.safetensors").items()}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(tensors, folder / "golden.safetensors")


def randomise(model, scale):
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape) * scale + (1 if p.ndim == 1 and scale < 0.2 else 0))
            p.copy_(p.to(torch.bfloat16).float())  # so that bf16 files hold the same numbers


def hidden(out):
    return {f"hidden.{i}": h.contiguous() for i, h in enumerate(out.hidden_states)}


@torch.no_grad()
def t5():
    config = T5Config(
        vocab_size=50, d_model=24, d_kv=10, d_ff=36, num_layers=3, num_heads=3,
        relative_attention_num_buckets=10, relative_attention_max_distance=20, feed_forward_proj="relu",
        is_encoder_decoder=False, use_cache=False,
    )
    model = T5EncoderModel(config).eval()
    randomise(model, 0.3)
    ids = torch.randint(2, 50, (2, 57))
    golden = {"input_ids": ids, **hidden(model(ids, output_hidden_states=True))}
    write("t5-relu", model, golden | adapted("t5-relu", model, ["q", "v", "wo"], input_ids=ids), torch.bfloat16)


@torch.no_grad()
def clip():
    config = CLIPTextConfig(
        vocab_size=50, hidden_size=24, intermediate_size=40, projection_dim=14, num_hidden_layers=2, num_attention_heads=3,
        max_position_embeddings=16, hidden_act="gelu", bos_token_id=47, eos_token_id=30, pad_token_id=0,
    )
    model = CLIPTextModelWithProjection(config).eval()
    randomise(model, 0.15)
    ids = torch.randint(1, 30, (3, 16))
    for row, end in enumerate((4, 11, 15)):
        ids[row, 0] = 47
        ids[row, end] = 30
        ids[row, end + 1:] = 0
    ids[0, 6] = 30  # a second end token
    out = model(ids)
    golden = {"input_ids": ids, "last_hidden_state": out.last_hidden_state, "pooler_output": out.text_embeds}
    write("clip-projection", model, golden | adapted("clip-projection", model, ["q_proj", "out_proj", "fc1"], input_ids=ids), torch.bfloat16)


@torch.no_grad()
def qwen():
    text = dict(
        vocab_size=60, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1,
        rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]}, rope_theta=500000.0, max_position_embeddings=128, rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=24, patch_size=4, window_size=16, fullatt_block_indexes=[0])
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True)
    model = Qwen2_5_VLForConditionalGeneration(config).eval()
    randomise(model, 0.15)
    ids = torch.randint(3, 60, (2, 33))
    golden = {"input_ids": ids, **hidden(model(input_ids=ids, output_hidden_states=True))}
    golden |= adapted("qwen2_5_vl-tied", model, r".*language_model.*(q_proj|down_proj)", input_ids=ids)
    write("qwen2_5_vl-tied", model, golden, torch.bfloat16)
    # A flat config.json, as in the checkpoints of 2025.
    folder = OUT / "qwen2_5_vl-tied"
    flat = {**text, "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "hidden_act": "silu",
            "torch_dtype": "bfloat16", "sliding_window": 64, "use_sliding_window": False, "max_window_layers": 1, "vision_config": vision}
    (folder / "config.flat.json").write_text(json.dumps(flat, indent=1) + "\n")


torch.manual_seed(27)
t5()
clip()
qwen()
