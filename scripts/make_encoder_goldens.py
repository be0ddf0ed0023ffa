#!/usr/bin/env python3
"""Write tiny random encoders as sentence-transformers saves them, with PyTorch's hidden states and vectors for them.

Every case is a folder with the model, its tokenizer, modules.json and the folders that it names, and
golden.safetensors: `input_ids` [rows, length] and `hidden.N` for them (before the first layer, and after each),
`padding.hidden` of `padding.input_ids`, texts in which the token of padding is one that is seen, where it has a position of its own,
`embedding` of the texts in texts.json as SentenceTransformer.encode gives it, `embedding.PROMPT` with a prompt,
`embedding.adapter` with the adapter in the folder adapter, and `lengths`, the numbers of their tokens. The same command gives the same bytes.

  python scripts/make_encoder_goldens.py --out testdata/encoders
  python scripts/make_encoder_goldens.py --out testdata/encoders --only mpnet
"""
import argparse
import json
import os
import shutil
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedTokenizerFast

LENGTH = 20
TEXTS = [
    "A cat sat on the mat.", "Where is the nearest station?", "The quick brown fox jumps over the lazy dog, twice.", "Übergrößen sind NICHT vorrätig!",
    "", "   spaces   around and   within   ", "one", "Fine-tuning with low rank adapters changes few weights; the others stay where they lie in the file.",
    "A text that is longer than the others, so that it is cut where the model says that texts are cut, whatever stands behind: this and that, and more of it.",
    "emoji 🙂 and 漢字", "A cat sat on the mat.",
]
SHAPE = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 48, "initializer_range": 0.25}
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
PROMPTS = {"query": "query: ", "passage": "passage: "}


def nomic_own(config, weights):
    """The configuration and weights of a model as its own code, which transformers converts, has them."""
    own = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_inner": "intermediate_size", "layer_norm_epsilon": "layer_norm_eps"}
    kept = {k: config[k] for k in ("dtype", "initializer_range", "model_type", "pad_token_id", "type_vocab_size", "vocab_size")}
    config = {**kept, **{k: config[v] for k, v in own.items()}, "architectures": ["NomicBertForPreTraining"], "activation_function": "geglu", "n_positions": 48, "max_trained_positions": config["max_position_embeddings"],
              "rotary_emb_base": config["rope_parameters"]["rope_theta"], "rotary_scaling_factor": config["rope_parameters"]["factor"], "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
              "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "prenorm": False, "parallel_block": False, "use_rms_norm": False, "causal": False, "pad_vocab_size_multiple": 1, "scale_attn_weights": True}
    return config, {k.replace("nomic_bert.", "bert."): v for k, v in weights.items()}


def gte_own(config, weights):
    """The same for GTE, whose own code has scaling of positions that transformers has not: it is linear with other numbers."""
    d = config["hidden_size"] // config["num_attention_heads"]
    factor = config["rope_parameters"]["factor"] ** (d / 2)
    config = {**config, "architectures": ["NewForMaskedLM"], "model_type": "new", "rope_theta": config["rope_parameters"]["rope_theta"] / factor, "rope_scaling": {"type": "ntk", "factor": round(factor, 9)}, "position_embedding_type": "rope", "layer_norm_type": "layer_norm",
              "logn_attention_scale": False, "logn_attention_clip1": False, "pack_qkv": True, "unpad_inputs": False, "use_memory_efficient_attention": False}
    del config["rope_parameters"]
    return config, {k.replace("gte.", "new.").replace("layer_norm", "norm"): v for k, v in weights.items()}


# name: (model type, changes of SHAPE, class, stored dtype, tokenizer, modules after the transformer, settings)
CASES = {
    "bert": ("bert", {}, AutoModel, "float32", "wordpiece", [("Pooling", {"mean": True}), ("Normalize", {})], {"max_seq_length": 16, "adapter": {"r": 3, "lora_alpha": 6, "task_type": "FEATURE_EXTRACTION"}}),
    "bert-head": ("bert", {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3, "type_vocab_size": 3}, AutoModelForMaskedLM, "float16", "wordpiece",
                  [("Pooling", {"cls": True})], {"max_seq_length": None, "prompts": PROMPTS, "default_prompt_name": "passage", "adapter": {"r": 2, "target_modules": r".*encoder.*(dense|key)|.*word_embeddings", "bias": "lora_only"}}),
    "bert-old": ("bert", {}, AutoModel, "float32", "wordpiece-types", [("Pooling", {"max": True, "mean_sqrt_len": True})], {"max_seq_length": 20, "do_lower_case": True, "gamma": True, "oldest": True,
                                                                           "adapter": {"r": 2, "target_modules": ["dense", "token_type_embeddings"], "bias": "all", "use_rslora": True}}),
    "roberta": ("roberta", {"max_position_embeddings": 40, "type_vocab_size": 1}, AutoModel, "float32", "bytes", [("Pooling", {"weightedmean": True})], {"max_seq_length": 38}),
    "xlm-roberta": ("xlm-roberta", {"type_vocab_size": 1, "num_hidden_layers": 3}, AutoModelForMaskedLM, "bfloat16", "unigram",
                    [("Pooling", {"mean": True}), ("Normalize", {})], {"max_seq_length": 24, "prompts": PROMPTS}),
    "mpnet": ("mpnet", {"max_position_embeddings": 300}, AutoModel, "float32", "wordpiece-fairseq",
              [("Pooling", {"mean": True}), ("Dense", {"in": 24, "out": 10, "activation": "torch.nn.modules.activation.Tanh", "bias": True}), ("Normalize", {})], {"max_seq_length": 32, "length": 290}),
    "camembert": ("camembert", {"max_position_embeddings": 40, "type_vocab_size": 1, "hidden_act": "relu"}, AutoModelForMaskedLM, "float32", "unigram", [("Pooling", {"mean": True})], {"seed": 2100, "max_seq_length": 30}),
    "distilbert": ("distilbert", {"hidden_size": None, "dim": 24, "hidden_dim": 40, "n_layers": 2, "n_heads": 3, "intermediate_size": None, "num_hidden_layers": None, "num_attention_heads": None},
                   AutoModel, "float32", "wordpiece", [("Pooling", {"mean": True}), ("Normalize", {})], {"seed": 2101, "max_seq_length": 20, "adapter": {"r": 2, "lora_alpha": 5, "target_modules": ["q_lin", "v_lin", "lin1"]}}),
    "distilbert-head": ("distilbert", {"hidden_size": None, "dim": 18, "hidden_dim": 30, "n_layers": 3, "n_heads": 2, "activation": "relu", "intermediate_size": None, "num_hidden_layers": None, "num_attention_heads": None},
                        AutoModelForMaskedLM, "bfloat16", "wordpiece", [("Pooling", {"cls": True})], {"seed": 2102, "max_seq_length": 24}),
    "modernbert": ("modernbert", {"num_hidden_layers": 4, "local_attention": 6}, AutoModel, "float32", "wordpiece",
                   [("Pooling", {"cls": True}), ("Normalize", {})], {"seed": 2103, "max_seq_length": 40, "adapter": {"r": 2, "lora_alpha": 5, "target_modules": ["Wqkv", "Wo", "Wi"]}}),
    "modernbert-head": ("modernbert", {
        "local_attention": 9, "hidden_activation": "gelu_pytorch_tanh", "norm_eps": 1e-3, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "classifier_pooling": "mean", "classifier_activation": "silu", "num_attention_heads": 2,
        "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500.0}, "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0}},
    }, AutoModelForMaskedLM, "bfloat16", "bytes", [("Pooling", {"mean": True})], {"seed": 2104, "max_seq_length": 30}),
    "nomic-bert": ("nomic_bert", {}, AutoModel, "float32", "wordpiece", [("Pooling", {"mean": True}), ("Normalize", {})],
                   {"seed": 2110, "max_seq_length": 40, "prompts": PROMPTS, "adapter": {"r": 2, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj", "o_proj", "up_proj"]}}),
    "nomic-bert-head": ("nomic_bert", {"num_attention_heads": 2, "head_dim": 10, "hidden_act": "gelu", "layer_norm_eps": 1e-3, "type_vocab_size": 1, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0}},
                        AutoModelForMaskedLM, "bfloat16", "wordpiece", [("Pooling", {"cls": True})], {"seed": 2111, "max_seq_length": 24, "adapter": {"r": 2, "target_modules": ["k_proj", "gate_proj", "down_proj"], "use_dora": True}}),
    "nomic-bert-own": ("nomic_bert", {"max_position_embeddings": 12, "hidden_act": "gelu", "rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 100.0}},
                       AutoModelForMaskedLM, "float16", "wordpiece", [("Pooling", {"mean": True})], {"seed": 2112, "max_seq_length": 12, "respell": nomic_own}),
    "gte": ("gte", {"hidden_dropout_prob": 0.0}, AutoModel, "float32", "unigram", [("Pooling", {"cls": True}), ("Normalize", {})],
            {"seed": 2113, "max_seq_length": 40, "adapter": {"r": 2, "lora_alpha": 5, "target_modules": ["q_proj", "k_proj", "gate_proj", "down_proj"], "bias": "all"}}),
    "gte-head": ("gte", {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-3, "type_vocab_size": 3, "num_attention_heads": 2, "hidden_dropout_prob": 0.0, "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 50.0, "original_max_position_embeddings": 16}},
                 AutoModelForMaskedLM, "bfloat16", "bytes", [("Pooling", {"mean": True})], {"seed": 2114, "max_seq_length": 30}),
    "gte-own": ("gte", {"hidden_act": "silu", "type_vocab_size": 0, "hidden_dropout_prob": 0.0, "rope_parameters": {"rope_type": "linear", "factor": 3.0 ** (2 / 8), "rope_theta": 1500.0}},
                AutoModelForMaskedLM, "float16", "wordpiece", [("Pooling", {"cls": True})], {"seed": 2115, "max_seq_length": 30, "respell": gte_own}),
    "deberta-v2": ("deberta-v2", {"relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False, "max_relative_positions": -1},
                   AutoModel, "float32", "unigram-deberta", [("Pooling", {"mean": True}), ("Normalize", {})], {"seed": 2120, "max_seq_length": 40, "adapter": {"r": 2, "lora_alpha": 5}}),
    "deberta-v2-head": ("deberta-v2", {"relative_attention": True, "max_relative_positions": 6, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3, "num_attention_heads": 2, "legacy": False, "max_position_embeddings": 64},
                        AutoModelForMaskedLM, "bfloat16", "unigram-deberta-4", [("Pooling", {"cls": True})],
                        {"seed": 2121, "max_seq_length": 40, "length": 60, "adapter": {"r": 2, "target_modules": ["query_proj", "pos_key_proj", "pos_query_proj", "dense"], "bias": "lora_only"}}),
    "deberta-v2-p2c": ("deberta-v2", {"relative_attention": True, "position_buckets": 6, "max_relative_positions": 30, "share_att_key": True, "pos_att_type": ["p2c"], "position_biased_input": False, "type_vocab_size": 3, "hidden_act": "relu"},
                       AutoModel, "float16", "wordpiece-types", [("Pooling", {"max": True})], {"seed": 2122, "max_seq_length": 24, "length": 45, "adapter": {"r": 2, "target_modules": ["query_proj", "key_proj"], "use_dora": True}}),
    "deberta-v2-plain": ("deberta-v2", {"relative_attention": False, "pos_att_type": "c2p"}, AutoModel, "float32", "wordpiece", [("Pooling", {"cls": True})], {"seed": 2123, "max_seq_length": 24}),
    "llama": ("llama", {"num_key_value_heads": 1, "head_dim": 8, "rms_norm_eps": 1e-5}, AutoModel, "float32", "bytes", [("Pooling", {"lasttoken": True}), ("Normalize", {})], {"max_seq_length": 30}),
}
MODES = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens", "mean_sqrt_len": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"}


def tokenizer(kind, folder):
    """A tokenizer of a few hundred tokens, learned from TEXTS."""
    corpus = [t for t in TEXTS if t] * 3
    if kind.startswith("wordpiece"):
        special = BERT_SPECIAL if kind != "wordpiece-fairseq" else ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
        normalizer, splitter = normalizers.BertNormalizer(lowercase=kind != "wordpiece-fairseq"), pre_tokenizers.BertPreTokenizer()
        # Not trained, because the trainer is not deterministic.
        words = sorted({w for text in corpus for w, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))})
        letters = sorted({c for w in words for c in w} - {"漢"})
        pieces = special + letters + ["##" + c for c in letters] + [w for w in words if len(w) > 2][::2]
        t = Tokenizer(models.WordPiece({p: i for i, p in enumerate(dict.fromkeys(pieces))}, unk_token="[UNK]"))
        t.normalizer, t.pre_tokenizer = normalizer, splitter
        t.decoder = decoders.WordPiece()
    elif kind == "bytes":
        special = FAIRSEQ
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = decoders.ByteLevel()
        t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=340, special_tokens=special, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    else:
        special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"] if "deberta" in kind else FAIRSEQ
        normalizer, splitter = normalizers.NFKC(), pre_tokenizers.Metaspace()
        if kind == "unigram-deberta":  # as DebertaV2Tokenizer of transformers 5 makes it
            normalizer = normalizers.Sequence([normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(), normalizers.Strip(left=False, right=True)])
            splitter = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="always")])
        elif kind == "unigram-deberta-4":  # as transformers 4 converts it, without tables
            normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
            splitter = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(behavior="isolated"), pre_tokenizers.Metaspace(prepend_scheme="always")])
        words = sorted({w for text in corpus for w, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))})
        letters = sorted({c for w in words for c in w} - {"漢"})
        scored = [(p, 0.0) for p in special] + [(c, -6 - i / 64) for i, c in enumerate(letters)] + [(w, -4 - i / 64) for i, w in enumerate(words) if len(w) > 1 and i % 2]
        scored += [(w[:3], -5 - i / 128) for i, w in enumerate(words) if len(w) > 4 and w[:3] not in words[:i] and all(w[:3] != x[:3] for x in words[:i])]
        t = Tokenizer(models.Unigram(list(dict(scored).items()), unk_id=3, byte_fallback=False))
        t.normalizer, t.pre_tokenizer, t.decoder = normalizer, splitter, decoders.Metaspace()
    first, last = (special[0], special[2]) if special[0] == "<s>" else ("[CLS]", "[SEP]")
    ends = [(first, t.token_to_id(first)), (last, t.token_to_id(last))]
    typed = kind == "wordpiece-types" or "deberta" in kind
    pair = f"{first} $A {last} $B:1 {last}:1" if typed else f"{first} $A {last} {last} $B {last}"
    t.post_processor = processors.TemplateProcessing(single=f"{first} $A {last}", pair=pair, special_tokens=ends)
    names = {"pad_token": special[1] if special[0] == "<s>" else special[0], "unk_token": special[3] if special[3] in ("<unk>", "[UNK]") else special[1], "cls_token": first, "sep_token": last, "mask_token": special[4]}
    if typed:  # otherwise transformers omits the types
        names["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    fast = PreTrainedTokenizerFast(tokenizer_object=t, model_max_length=512, **names)
    fast.save_pretrained(folder)
    return fast


def write_json(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, ensure_ascii=False)
        file.write("\n")


def modules(folder, listed, settings, width, seed):
    """The files of the sentence-transformers modules after the model."""
    entries = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, (kind, options) in enumerate(listed, 1):
        path = f"{i}_{kind}"
        entries.append({"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"})
        if kind == "Pooling":
            config = {"word_embedding_dimension": width}
            for mode, key in MODES.items():
                if not (settings.get("oldest") and mode in ("weightedmean", "lasttoken")):  # keys that were added later
                    config["pooling_mode_" + key] = options.get(mode, False)
            write_json(os.path.join(folder, path, "config.json"), config)
        if kind == "Dense":
            write_json(os.path.join(folder, path, "config.json"), {"in_features": options["in"], "out_features": options["out"], "bias": options["bias"], "activation_function": options["activation"]})
            draw = torch.Generator().manual_seed(seed)
            weights = {"linear.weight": torch.randn(options["out"], options["in"], generator=draw) / 3, "linear.bias": torch.randn(options["out"], generator=draw) / 3}
            save_file(weights, os.path.join(folder, path, "model.safetensors"))
    write_json(os.path.join(folder, "modules.json"), entries)
    write_json(os.path.join(folder, "sentence_bert_config.json"), {"max_seq_length": settings["max_seq_length"], "do_lower_case": settings.get("do_lower_case", False)})
    write_json(os.path.join(folder, "config_sentence_transformers.json"), {
        "__version__": {"sentence_transformers": "3.0.0", "transformers": "4.40.0", "pytorch": "2.3.0"},
        "prompts": settings.get("prompts", {}), "default_prompt_name": settings.get("default_prompt_name"), "similarity_fn_name": "cosine"})


def make(name, out):
    kind, changes, cls, dtype, words, listed, settings = CASES[name]
    # The seeds of the first cases follow from their names; later cases set theirs.
    first = sorted(n for n, case in CASES.items() if "seed" not in case[-1])
    seed = settings.get("seed") or 2000 + first.index(name)
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    tok = tokenizer(words, folder)
    fields = {k: v for k, v in {**SHAPE, **changes}.items() if v is not None}
    fields = {**fields, "vocab_size": len(tok), "pad_token_id": tok.pad_token_id}
    torch.manual_seed(seed)
    model = cls.from_config(AutoConfig.for_model(kind, **fields))
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:  # norms and biases that are never one or zero, so that tests detect a missing one
                p.add_(torch.randn(p.shape) * 0.1)
    model.to(getattr(torch, dtype)).eval().save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    if settings.get("gamma"):
        old = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in load_file(path).items()}
        save_file(old, path, metadata={"format": "pt"})
    modules(folder, listed, settings, model.config.hidden_size, seed)
    body = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.randint(5, fields["vocab_size"], (2, settings.get("length", LENGTH)), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        hidden = body(input_ids=ids, output_hidden_states=True).hidden_states
    st = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    golden = {"input_ids": ids, **{f"hidden.{i}": h for i, h in enumerate(hidden)}}
    if kind in ("roberta", "xlm-roberta", "mpnet", "camembert"):
        padded = ids[:, :9].clone()
        padded[0, [0, 3, 4, 8]] = padded[1, 5:] = tok.pad_token_id
        with torch.no_grad():
            golden.update({"padding.input_ids": padded, "padding.hidden": body(input_ids=padded, attention_mask=torch.ones_like(padded)).last_hidden_state})
    golden["embedding"] = torch.from_numpy(st.encode(TEXTS, batch_size=4))
    prefix = settings.get("prompts", {}).get(settings.get("default_prompt_name"), "")
    for prompt in settings.get("prompts", {}):
        golden["embedding." + prompt] = torch.from_numpy(st.encode(TEXTS, prompt_name=prompt))
    if "adapter" in settings:
        torch.manual_seed(seed)
        tuned = get_peft_model(st[0].auto_model, LoraConfig(**settings["adapter"], init_lora_weights=False))
        tuned.save_pretrained(os.path.join(folder, "adapter"))
        golden["embedding.adapter"] = torch.from_numpy(st.encode(TEXTS))
        os.remove(os.path.join(folder, "adapter", "README.md"))
    limit = st.max_seq_length
    golden["lengths"] = torch.tensor([len(st.tokenizer(prefix + t, truncation="longest_first", max_length=limit)["input_ids"]) for t in TEXTS])
    save_file({k: v.contiguous() for k, v in golden.items()}, os.path.join(folder, "golden.safetensors"))
    if "respell" in settings:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config, weights = settings["respell"](json.load(file), load_file(path))
        write_json(os.path.join(folder, "config.json"), config)
        save_file(weights, path, metadata={"format": "pt"})
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(folder) for f in fs)
    print(f"{name:12} {size:8,} bytes, vocabulary {len(tok)}, lengths {golden['lengths'].tolist()} of {limit}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the cases; a case that is there is replaced")
    parser.add_argument("--only", nargs="+", metavar="CASE", choices=sorted(CASES), help="these cases only")
    a = parser.parse_args()
    torch.set_num_threads(1)  # deterministic order of summation
    torch.use_deterministic_algorithms(True)
    os.makedirs(a.out, exist_ok=True)
    write_json(os.path.join(a.out, "texts.json"), TEXTS)
    for name in a.only or CASES:
        make(name, a.out)


if __name__ == "__main__":
    sys.exit(main())
