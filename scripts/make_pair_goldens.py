"""Writes testdata/tokenizers/pairs.json: what Hugging Face tokenizers makes of pairs of texts with the tokenizers of
testdata, whole and cut to each length as transformers' truncation=True cuts them (longest_first).

    pip install tokenizers==0.23.3 transformers==5.23.0
    python scripts/make_pair_goldens.py testdata

For each tokenizer: ids and types of the whole pairs, and 16-bit checksums of both for each pair, side and length.
A length below the number of special tokens, for which the library's result is arbitrary, has the checksum
0.
"""

import base64
import json
import shutil
import struct
import sys
import tempfile
import zlib
from pathlib import Path

from tokenizers import Tokenizer
from transformers import AutoTokenizer

DATA = Path(sys.argv[1])
LENGTHS = 24
# Texts of equal and different, odd and even lengths, with one or both empty, and single texts.
TEXTS = [
    ["the of and to", "in is that it"],
    ["Hello  world", "I'll've been there, don't you?"],
    ["A text that is longer than the other one, by far", "short"],
    ["", "nothing before"], ["nothing behind", ""], ["", ""],
    ["naïve café 日本語", "<s> 1234 [SEP] </s>"],
    ["a", "b"],
    ["one text alone, not joined to another"], [""],
]
FILES = ["encoders/bert/tokenizer.json", "encoders/roberta/tokenizer.json", "encoders/xlm-roberta/tokenizer.json",
         "tokenizers/llama3/tokenizer.json", "tokenizers/qwen2/tokenizer.json", "tokenizers/wordpiece/tokenizer.json"]
# A family and its tokenizer_config.json.
BOTH = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
CONFIGS = [("llama2", {**BOTH, "add_bos_token": bos, "add_eos_token": eos}) for bos in (True, False) for eos in (True, False)]


def checksum(ids, types):
    return zlib.crc32((",".join(map(str, ids)) + "\n" + ",".join(map(str, types))).encode()) & 0xFFFF


def golden(tok):
    rows, sums = [], b""
    for texts in TEXTS:
        tok.no_truncation()
        whole = tok.encode(*texts)
        rows.append([whole.ids, whole.type_ids])
    for side in ("right", "left"):
        for texts in TEXTS:
            for length in range(1, LENGTHS + 1):
                tok.no_truncation()
                if length < tok.num_special_tokens_to_add(len(texts) == 2):
                    sums += struct.pack("<H", 0)
                    continue
                tok.enable_truncation(max_length=length, strategy="longest_first", direction=side)
                cut = tok.encode(*texts)
                assert len(cut.ids) <= length
                sums += struct.pack("<H", checksum(cut.ids, cut.type_ids))
    return {"rows": rows, "checksums": base64.b64encode(sums).decode()}


def main():
    out = {"texts": TEXTS, "lengths": LENGTHS, "tokenizers": []}
    families = sorted((DATA / "tokenizers/families").glob("*.golden.json"))
    for path in [f"tokenizers/families/{f.name.removesuffix('.golden.json')}.json" for f in families] + FILES:
        out["tokenizers"].append({"file": path, **golden(Tokenizer.from_file(str(DATA / path)))})
    for family, config in CONFIGS:
        with tempfile.TemporaryDirectory() as folder:
            path = f"tokenizers/families/{family}.json"
            shutil.copy(DATA / path, Path(folder) / "tokenizer.json")
            (Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
            tok = AutoTokenizer.from_pretrained(folder)
            # Builds the post-processor that older versions built automatically.
            tok.add_bos_token, tok.add_eos_token = config["add_bos_token"], config["add_eos_token"]
            bare = Tokenizer.from_file(str(DATA / path))
            bare.post_processor = tok._tokenizer.post_processor
            out["tokenizers"].append({"file": path, "config": config, **golden(bare)})
    (DATA / "tokenizers/pairs.json").write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
