"""Writes internal/diffusion/testdata/prompts: what diffusers' pipelines make of captions, with tiny text encoders.

Usage: python scripts/make_prompt_goldens.py  (torch, transformers, diffusers, tokenizers, safetensors)

Each folder is a pipeline without its transformer's weights and without a VAE; golden.safetensors has what the pipeline
makes of the captions in texts.json. FLUX.1 and Kandinsky take tokenizers of testdata/dit, which the test adds.
"""

import json
import pathlib
import shutil

import numpy as np
import torch
from diffusers import (
    Flux2KleinPipeline,
    FluxPipeline,
    Kandinsky5T2IPipeline,
    QwenImageEditPipeline,
    QwenImageEditPlusPipeline,
    QwenImagePipeline,
    ZImagePipeline,
)
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus import calculate_dimensions
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    BatchFeature,
    CLIPTextConfig,
    CLIPTextModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5EncoderModel,
)

ROOT = pathlib.Path(__file__).parent.parent
OUT = ROOT / "diffusion" / "testdata" / "prompts"
FIXTURES = ROOT / "testdata" / "dit"
TEXTS = [
    "a photo of a cat",
    " A  photo of\tan Astronaut, riding a horse &amp;amp; on Mars!\n\nin the style of ohwx {} ",
    " ",
    "one two three four five six seven eight nine ten " * 60,
]
CHAT = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n"
    "{%- if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def words():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]
    t.train_from_iterator(
        TEXTS[:2] + ["Describe the image by detailing the color, shape, size", "system user assistant one two three four"],
        trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<|endoftext|>", eos_token="<|im_end|>", chat_template=CHAT, padding_side="right")


class Processor:
    """Results of Qwen2_5_VLProcessor for texts and pictures."""

    def __init__(self, tokenizer):
        self.tokenizer, self.decode, self.pictures = tokenizer, tokenizer.decode, Qwen2VLImageProcessor()

    def __call__(self, text, images=None, videos=None, **kwargs):
        if images is None:
            return self.tokenizer(text, **kwargs)
        seen = self.pictures(images, return_tensors="pt")
        for i, t in enumerate(text):
            parts = t.split("<|image_pad|>")
            counts = [int(n) // 4 for n in seen["image_grid_thw"].prod(-1)]
            text[i] = parts[0] + "".join("<|image_pad|>" * n + p for n, p in zip(counts, parts[1:], strict=True))
        return BatchFeature({**self.tokenizer(text, **kwargs), **seen})


def randomise(model, scale=0.2):
    with torch.no_grad():
        for p in model.parameters():
            x = torch.randn(p.shape) * scale
            p.copy_((x + 1 if p.ndim == 1 else x).to(torch.bfloat16).float())
    return model.eval()


def save(folder, name, model, visual=False):
    model.save_pretrained(folder / name)
    path = folder / name / "model.safetensors"
    keep = {k: v.to(torch.bfloat16) for k, v in load_file(path).items() if (visual or "visual" not in k) and k != "lm_head.weight"}
    save_file(keep, path, {"format": "pt"})
    (folder / name / "generation_config.json").unlink(missing_ok=True)


def index(folder, name, parts, transformer, **settings):
    (folder / "transformer").mkdir(parents=True)
    (folder / "transformer" / "config.json").write_text(json.dumps({"_class_name": transformer, **settings}, indent=1) + "\n")
    entries = {"_class_name": name, **{p: ["transformers", c] for p, c in parts.items()}, "transformer": ["diffusers", transformer]}
    (folder / "model_index.json").write_text(json.dumps(entries, indent=1) + "\n")


def qwen_vl(**vision):
    text = dict(vocab_size=300, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]}, max_position_embeddings=4096)
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, out_hidden_size=16, patch_size=4, window_size=16, fullatt_block_indexes=[0]) | vision
    return randomise(Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, image_token_id=4)))


def qwen3(layers):
    return randomise(Qwen3ForCausalLM(Qwen3Config(
        vocab_size=300, hidden_size=8, intermediate_size=12, num_hidden_layers=layers, num_attention_heads=1, num_key_value_heads=1, head_dim=8,
        max_position_embeddings=2048, tie_word_embeddings=True)))


def clip():
    return randomise(CLIPTextModel(CLIPTextConfig(
        vocab_size=957, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, bos_token_id=955, eos_token_id=2, pad_token_id=956)))


def pictures():
    """A flat picture, which no filter changes, and one with something in it."""
    y, x = np.mgrid[0:200, 0:310]
    waves = np.stack([128 + 100 * np.sin(x / 30), 128 + 90 * np.cos(y / 25), 255 * (x + y) / 510], -1)
    flat, drawn = Image.new("RGB", (300, 220), (200, 90, 30)), Image.fromarray(np.clip(waves, 0, 255).astype(np.uint8))
    (OUT / "pictures").mkdir()
    flat.save(OUT / "pictures" / "flat.png")
    drawn.save(OUT / "pictures" / "drawn.png")
    return {"flat": flat, "drawn": drawn}


def edit(chat):
    """Both editing pipelines, called in full: pictures are scaled before prompts are encoded."""
    encoder = qwen_vl(depth=2, hidden_size=16, intermediate_size=12, num_heads=2, patch_size=14, window_size=112, fullatt_block_indexes=[1])
    parts = dict(scheduler=None, vae=None, text_encoder=encoder, tokenizer=chat, processor=Processor(chat), transformer=None)
    golden, images = {}, pictures()
    for name, image in images.items():
        for kind, pipe, area in (("edit", QwenImageEditPipeline(**parts), 1024 * 1024), ("plus", QwenImageEditPlusPipeline(**parts), 384 * 384)):
            w, h = calculate_dimensions(area, image.width / image.height)
            scaled = pipe.image_processor.resize(image, h, w)
            embeds = pipe.encode_prompt(TEXTS[0], image=scaled if kind == "edit" else [scaled], device="cpu")[0][0]
            golden[f"{kind}.{name}"] = torch.cat([embeds[:24], embeds[-24:]]).contiguous()
            golden[f"{kind}.{name}.tokens"] = torch.tensor([len(embeds)])
    both = [pipe.image_processor.resize(i, *reversed(calculate_dimensions(384 * 384, i.width / i.height))) for i in images.values()]
    embeds = pipe.encode_prompt(TEXTS[1], image=both, device="cpu")[0][0]
    golden["plus.both"] = torch.cat([embeds[:24], embeds[-24:]]).contiguous()
    golden["plus.both.tokens"] = torch.tensor([len(embeds)])
    folder = OUT / "qwenimage-edit"
    index(folder, "QwenImageEditPlusPipeline", {"text_encoder": "Qwen2_5_VLForConditionalGeneration", "tokenizer": "Qwen2Tokenizer", "processor": "Qwen2VLProcessor"},
          "QwenImageTransformer2DModel")
    save(folder, "text_encoder", encoder, visual=True)
    save_file(golden, folder / "golden.safetensors")


@torch.no_grad()
def main():
    torch.manual_seed(2727)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    (OUT / "texts.json").write_text(json.dumps(TEXTS) + "\n")
    chat = words()
    chat.save_pretrained(OUT / "tokenizer")
    clip_words, t5_words = (AutoTokenizer.from_pretrained(FIXTURES / f"tokenizer-{n}") for n in ("clip", "t5"))
    clip_words.model_max_length = 77

    folder, encoder = OUT / "qwenimage", qwen_vl()
    pipe = QwenImagePipeline(scheduler=None, vae=None, text_encoder=encoder, tokenizer=chat, transformer=None)
    golden = {f"embeds.{i}": pipe.encode_prompt(t, device="cpu")[0][0].contiguous() for i, t in enumerate(TEXTS)}
    index(folder, "QwenImagePipeline", {"text_encoder": "Qwen2_5_VLForConditionalGeneration", "tokenizer": "Qwen2Tokenizer"}, "QwenImageTransformer2DModel")
    save(folder, "text_encoder", encoder)
    save_file(golden, folder / "golden.safetensors")

    edit(chat)

    folder, second = OUT / "kandinsky5", clip()
    pipe = Kandinsky5T2IPipeline(transformer=None, vae=None, text_encoder=encoder, tokenizer=Processor(chat), text_encoder_2=second, tokenizer_2=clip_words, scheduler=None)
    golden = {}
    for i, t in enumerate(TEXTS):
        embeds, pooled, _ = pipe.encode_prompt(t, device="cpu", dtype=torch.float32)
        golden |= {f"embeds.{i}": embeds[0].contiguous(), f"pooled.{i}": pooled[0].contiguous()}
    index(folder, "Kandinsky5T2IPipeline", {"text_encoder": "Qwen2_5_VLForConditionalGeneration", "tokenizer": "Qwen2VLProcessor", "text_encoder_2": "CLIPTextModel",
                                            "tokenizer_2": "CLIPTokenizer"}, "Kandinsky5Transformer3DModel")
    save(folder, "text_encoder_2", second)
    save_file(golden, folder / "golden.safetensors")

    folder, t5 = OUT / "flux", randomise(T5EncoderModel(T5Config(
        vocab_size=320, d_model=8, d_kv=4, d_ff=12, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu", is_encoder_decoder=False, use_cache=False)))
    pipe = FluxPipeline(scheduler=None, vae=None, text_encoder=second, tokenizer=clip_words, text_encoder_2=t5, tokenizer_2=t5_words, transformer=None)
    golden = {}
    for i, t in enumerate(TEXTS):
        for length in (512, 256):
            embeds, pooled, _ = pipe.encode_prompt(t, device="cpu", max_sequence_length=length)
            keep = torch.cat([embeds[0, :16], embeds[0, -16:]])  # both ends, because padding is attended to
            golden |= {f"embeds.{i}.{length}": keep.contiguous(), f"pooled.{i}": pooled[0].contiguous()}
    parts = {"text_encoder": "CLIPTextModel", "tokenizer": "CLIPTokenizer", "text_encoder_2": "T5EncoderModel", "tokenizer_2": "T5TokenizerFast"}
    index(folder, "FluxPipeline", parts, "FluxTransformer2DModel", guidance_embeds=True)
    save(folder, "text_encoder", second)
    save(folder, "text_encoder_2", t5)
    save_file(golden, folder / "golden.safetensors")

    folder, encoder = OUT / "zimage", qwen3(3)
    pipe = ZImagePipeline(scheduler=None, vae=None, text_encoder=encoder, tokenizer=chat, transformer=None)
    golden = {f"embeds.{i}": pipe.encode_prompt(t, device="cpu", do_classifier_free_guidance=False)[0][0].contiguous() for i, t in enumerate(TEXTS)}
    index(folder, "ZImagePipeline", {"text_encoder": "Qwen3ForCausalLM", "tokenizer": "Qwen2Tokenizer"}, "ZImageTransformer2DModel")
    save(folder, "text_encoder", encoder)
    save_file(golden, folder / "golden.safetensors")

    folder, encoder = OUT / "flux2-klein", qwen3(28)
    pipe = Flux2KleinPipeline(scheduler=None, vae=None, text_encoder=encoder, tokenizer=chat, transformer=None)
    golden = {}
    for i, t in enumerate(TEXTS):
        embeds = pipe.encode_prompt(t, device="cpu")[0][0]
        golden[f"embeds.{i}"] = torch.cat([embeds[:16], embeds[-16:]]).contiguous()
    index(folder, "Flux2KleinPipeline", {"text_encoder": "Qwen3ForCausalLM", "tokenizer": "Qwen2TokenizerFast"}, "Flux2Transformer2DModel")
    save(folder, "text_encoder", encoder)
    save_file(golden, folder / "golden.safetensors")


main()
