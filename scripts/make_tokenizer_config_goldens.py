"""Writes testdata/tokenizers/families/configs.json: token ids by transformers with the small
tokenizers in this folder and a tokenizer_config.json.

    pip install transformers==5.23.0
    python scripts/make_tokenizer_config_goldens.py testdata/tokenizers/families
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer

FOLDER = Path(sys.argv[1])
TEXTS = ["Hello <s> world </s>", "a <mask> b<mask>c", "x [PAD] y<|x|> z <|y|>", "don't you . ?", " [NEW] newtok <unk> [MASK]", ""]
CASES = [
    ("gpt2", {}),
    ("gpt2", {"bos_token": "<s>", "eos_token": "</s>"}),
    ("gpt2", {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}),
    ("gpt2", {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}),
    ("gpt2", {"eos_token": "</s>", "add_bos_token": True}),
    ("llama3", {"bos_token": "<s>"}),
    ("llama3", {"bos_token": "<s>", "add_bos_token": False}),
    ("llama3", {"bos_token": "<s>", "add_eos_token": None}),
    ("llama3", {"pad_token": "[PAD]", "additional_special_tokens": ["<|x|>"]}),
    ("llama3", {"pad_token": "[PAD]", "extra_special_tokens": ["<|x|>", "<|y|>"]}),
    ("llama3", {"pad_token": {"__type": "AddedToken", "content": "[PAD]", "lstrip": True, "rstrip": True, "normalized": False, "single_word": False, "special": True}}),
    ("llama3", {"added_tokens_decoder": {"3": {"content": "<pad>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True},
                                         "900": {"content": "<|y|>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": False},
                                         "500": {"content": "<|x|>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": False}}}),
    ("roberta", {"mask_token": "<mask>"}),
    ("roberta", {"mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": False, "rstrip": True, "normalized": True, "single_word": False, "special": True}}),
    ("roberta", {"added_tokens_decoder": {"4": {"content": "<mask>", "lstrip": False, "rstrip": True, "normalized": False, "single_word": False, "special": True}}, "mask_token": "<mask>"}),
    ("qwen2", {"clean_up_tokenization_spaces": True, "eos_token": "<|endoftext|>"}),
    ("bert_uncased", {"clean_up_tokenization_spaces": True, "mask_token": "[MASK]", "unk_token": "[UNK]"}),
    ("bert_uncased", {"clean_up_tokenization_spaces": False, "mask_token": "[MASK]"}),
    ("t5", {"clean_up_tokenization_spaces": True, "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}),
    ("llama2", {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": True}),
    ("added", {"additional_special_tokens": ["newtok"]}),
    ("bert_cased", {"sep_token": "[SEP]", "cls_token": "[CLS]", "pad_token": "[PAD]", "add_bos_token": False}),
]


def main():
    out = []
    for family, config in CASES:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(FOLDER / f"{family}.json", Path(folder) / "tokenizer.json")
            config = {"tokenizer_class": "TokenizersBackend", **config}
            (Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
            tok = AutoTokenizer.from_pretrained(folder)
            rows = []
            for text in TEXTS:
                ids = tok(text)["input_ids"]
                rows.append([text, ids, tok(text, add_special_tokens=False)["input_ids"], tok.decode(ids), tok.decode(ids, skip_special_tokens=True)])
            named = [tok.bos_token_id, tok.eos_token_id, tok.pad_token_id, tok.unk_token_id]
            out.append({"family": family, "config": config, "size": len(tok), "named": named, "rows": rows})
    (FOLDER / "configs.json").write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
