"""Writes testdata/tokenizers/families: small tokenizers of every kind, and the results of
Hugging Face tokenizers for the same texts with each.

    pip install tokenizers==0.23.3
    python scripts/make_tokenizer_goldens.py testdata/tokenizers/families

texts.json holds the texts, <family>.json a tokenizer.json, <family>.golden.json the ids and
the decoded text of the first texts and a 16-bit checksum of ids and decoded text for each,
and such checksums for sequences of arbitrary ids.
"""

import base64
import json
import random
import struct
import sys
import zlib
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = Path(sys.argv[1])
SHOWN = 16  # rows given in full

HAND = [
    "", " ", "  ", "\n", " \n ", "Hello, world!", "Hello  world   !", "  leading and trailing  ",
    "tabs\tand\nnewlines\r\n\r\nend", "I'll've DON'T it's WE'RE 'Tis 'ſ ſ's", "1234567 3.14 0x1F ½²③ ٣٤٥ Ⅷ",
    "naïve café Ångström ﬁ ½ ①", "cafe\u0301 A\u030angstro\u0308m", "日本語のテキスト。中文字符 한국어", "ひらがなカタカナ漢字",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈", "def f(x):\n    return x  # comment\n\n\n\tpass", "a\u00a0b\u3000c\u2028d\u200be\ufefff",
    "مرحبا بالعالم ١٢٣", "नमस्ते दुनिया", "สวัสดีชาวโลก", "<s>hello</s> [MASK] <mask> x<mask>y", "word[NEW]word [NEW] Word newtok newtoks xnewtok newtok.",
    "<|endoftext|>Hello <|endoftext|>", "  <mask>  spaced  <pad>  ", "İstanbul ǅ ẞ ΑΣ", "x" * 120, "supercalifragilisticexpialidocious",
    "\u0000\u0001\u007f\u0085\u009f control", "e" + "\u0301\u0323" * 20, "Z" + "\u0334" * 40 + "y", "▁under▁line ▁", "don't won't can't we'll",
    "<0x41><0xE6> literal bytes", "\ud7ff\ue000\ufffd", "tail \n", "\r\r\n\n \r", "- - -- --- -", "https://example.com/a?b=c&d=e#f", "A.B.C. e.g., i.e.; (x) [y] {z}",
    "fraction ⅓ ﷺ ㍿ ﾊﾝｶｸ ＡＢＣ", "#hashtag @user $100 100% a_b __init__", "\t\t\tx", "a\n\n\n b\n  c", " a  b   c    d", "Day day DAY birthday Days",
]
SCRIPTS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "    \n\t", ".,;:!?'\"-()[]{}<>/\\@#$%^&*_+=~`|",
    "àéîõüçßñøåæœŠžĞığ", "абвгдежзийклмнопрстуфхцчшщъыьэюя", "αβγδεζηθικλμνξοπρστυφχψω", "אבגדהוזחטיכלמנסעפצקרשת",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "अआइईउऊएऐओऔकखगघङचछजझञटठडढणतथदधन\u093e\u093f\u0940\u0941\u094d", "กขคงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝ\u0e31\u0e34\u0e48",
    "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年", "あいうえおかきくけこさしすせそアイウエオカキクケコ", "가나다라마바사아자차카타파하", "\u1100\u1161\u11a8\u1112\u1175",
    "😀😁🤣👍🏽👨‍👩‍👧🇩🇪❤️", "\u0300\u0301\u0302\u0308\u0323\u0327\u0345", "①②½⅓²³ⅣⅨ㊀", "\u00a0\u2003\u3000\u200b\u200d\u2028\ufeff", "‘’“”—–…·•€£¥©®™", "ﬁﬂﬀＡＢ１２ｱｲ㎏㍻",
]
WORDS = "the of and to in is that it was for on are with as his they at be this from have or by one had not but what all were when we there can an your which their said if do will each about how up out them then she many some so these would other into has more her two like him see time could no make than first been its who now people my made over did down only way find use may water long little very after words called just where most know".split()


def random_texts(n, rng):
    out = []
    for i in range(n):
        kind = i % 5
        if kind == 0:  # sentences with odd spacing
            parts = []
            for _ in range(rng.randint(1, 9)):
                w = rng.choice(WORDS)
                w = rng.choice([w, w, w, w.capitalize(), w.upper(), w + rng.choice("',.!?;:") + rng.choice(["s", "t", "ll", "RE", ""]), str(rng.randint(0, 99999))])
                parts.append(w + rng.choice([" ", " ", " ", "  ", "\n", "\t", " \n", "\r\n", "   ", ""]))
            out.append("".join(parts))
        elif kind == 1:  # one or two scripts
            a, b = rng.choice(SCRIPTS), rng.choice(SCRIPTS)
            out.append("".join(rng.choice(rng.choice([a, a, a, b, "  "])) for _ in range(rng.randint(1, 24))))
        elif kind == 2:  # all scripts
            out.append("".join(rng.choice(rng.choice(SCRIPTS)) for _ in range(rng.randint(1, 20))))
        elif kind == 3:  # any code point of the first planes
            s = ""
            while len(s) < rng.randint(1, 10):
                c = rng.choice([rng.randrange(0x20, 0x250), rng.randrange(0x250, 0x3000), rng.randrange(0x3000, 0xD800), rng.randrange(0xE000, 0x20000)])
                s += chr(c) + rng.choice(["", "", " ", "a", "1"])
            out.append(s)
        else:  # white space, punctuation, special tokens
            pool = [" ", " ", "\n", "\r\n", "\t", "'s", "'LL", "!", "?!", "a", "B", "1", "22", "<s>", "</s>", "<mask>", "<pad>", "[NEW]", "newtok", "Day", "<unk>", "▁", "é", "、", "日"]
            out.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 14))))
    return out


def darts(mapping):
    """A SentencePiece charsmap: a double array over the keys and the NUL-ended values."""
    values, blob = {}, b""
    for k, v in sorted(mapping.items()):
        values[k.encode()] = len(blob)
        blob += v.encode() + b"\0"
    tree = {}
    for k, v in values.items():
        node = tree
        for b in k:
            node = node.setdefault(b, {})
        node[None] = v
    units, used = {0: 0}, {0}

    def place(node, pos, label):
        labels = [0 if b is None else b for b in node]
        base = 1
        while any((base ^ l) in used for l in labels) or (pos ^ base) >= 1 << 21:
            base += 1
        offset = base ^ pos
        units[pos] = label | (offset << 10) | ((1 << 8) if None in node else 0)
        # Offsets are the XOR of the node's own index and the base of its children.
        for l in labels:
            used.add(base ^ l)
        for b, child in node.items():
            at = base ^ (0 if b is None else b)
            if b is None:
                units[at] = (1 << 31) | child
            else:
                place(child, at, b)

    place(tree, 0, 0)
    size = (max(units) | 0xFF) + 1
    trie = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(size))
    return struct.pack("<I", len(trie)) + trie + blob


CHARSMAP = {"ﬁ": "fi", "ﬂ": "fl", "½": "1⁄2", "①": "1", "\u3000": " ", "\u00a0": " ", "\t": " ", "\n": " ", "\r": " ", "\u200b": "", "Ａ": "A", "Ｂ": "B",
            "e\u0301": "é", "A\u030a": "Å", "㍿": "株式会社", "…": "...", "\ufeff": "", "ﷺ": "صلى الله عليه وسلم", "か": "か", "ｱ": "ア", "é": "é"}

CORPUS = [" ".join(WORDS)] * 3 + HAND + random_texts(400, random.Random(7))


def specials(*names):
    return [AddedToken(n, special=True, normalized=False) for n in names]


def train_bpe(tok, size, special, alphabet=True, **kw):
    initial = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=initial, show_progress=False, **kw))
    return tok


def byte_level(pre, size=420, special=("<|endoftext|>", "<s>", "</s>", "<pad>", "<mask>"), **model):
    tok = Tokenizer(models.BPE(**model))
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    return train_bpe(tok, size, specials(*special))


def gpt2():
    tok = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def roberta():
    tok = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    tok.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    tok.post_processor = processors.RobertaProcessing(("</s>", tok.token_to_id("</s>")), ("<s>", tok.token_to_id("<s>")))
    return tok


def split_regex(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def llama3():
    pat = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tok = byte_level(pre_tokenizers.Sequence([split_regex(pat), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), ignore_merges=True)
    s = tok.token_to_id("<s>")
    tok.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", s)])])
    return tok


def qwen2():
    pat = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tok = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([split_regex(pat), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    return train_bpe(tok, 420, specials("<|endoftext|>", "<s>"))


def o200k():
    pat = "|".join([
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""])
    return byte_level(pre_tokenizers.Sequence([split_regex(pat), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def deepseek():
    return byte_level(pre_tokenizers.Sequence([
        split_regex(r"\p{N}{1,3}"), split_regex("[一-龥぀-ゟ゠-ヿ]+"),
        split_regex(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def starcoder():
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def clip():
    tok = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>", continuing_subword_prefix=""))
    tok.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        split_regex(r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+""", "removed", True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok.decoder = decoders.ByteLevel()
    train_bpe(tok, 600, specials("<|startoftext|>", "<|endoftext|>"), end_of_word_suffix="</w>")
    tok.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), False, False)
    return tok


def spm_bpe(normalizer, pre, decoder, byte_fallback=True, fuse_unk=True):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
    tok.normalizer, tok.pre_tokenizer = normalizer, pre
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    base = Tokenizer(models.BPE(unk_token="<unk>"))
    base.normalizer = normalizers.Replace(" ", "▁")
    base.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    base.train_from_iterator([" ".join(WORDS)] * 3 + random_texts(60, random.Random(3)),
                             trainers.BpeTrainer(vocab_size=420, special_tokens=["<unk>", "<s>", "</s>"], limit_alphabet=120, show_progress=False))
    spec = json.loads(base.to_str())
    names = ["<unk>", "<s>", "</s>"] + byte_tokens + [t for t in sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].get) if t not in ("<unk>", "<s>", "</s>")]
    if not byte_fallback:
        names = [n for n in names if n not in byte_tokens]
    out = json.loads(tok.to_str())
    out["model"].update(vocab={n: i for i, n in enumerate(names)}, merges=spec["model"]["merges"])
    out["model"]["ignore_merges"] = False
    tok = Tokenizer.from_str(json.dumps(out))
    tok.add_special_tokens(specials("<unk>", "<s>", "</s>"))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    tok.decoder = decoder
    return tok


def llama_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def llama2():
    return spm_bpe(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, llama_decoder())


def mistral():
    return spm_bpe(None, pre_tokenizers.Metaspace("▁", "first", split=False), llama_decoder())


def gemma():
    tok = spm_bpe(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
                  decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]))
    tok.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("  ", normalized=False), AddedToken("▁▁▁", normalized=False)])
    return tok


def spm_unk():
    return spm_bpe(None, pre_tokenizers.Metaspace("▁", "always"), decoders.Metaspace("▁", "always"), byte_fallback=False, fuse_unk=False)


def spm_fuse_unk():
    return spm_bpe(normalizers.Sequence([normalizers.Strip(), normalizers.NFKC()]), pre_tokenizers.Metaspace("▁", "first"), decoders.Metaspace("▁", "first"), byte_fallback=False, fuse_unk=True)


def train_unigram(tok, size=400, special=("<pad>", "</s>", "<unk>")):
    tok.train_from_iterator(CORPUS[:3] + random_texts(150, random.Random(5)), trainers.UnigramTrainer(
        vocab_size=size, special_tokens=specials(*special), unk_token="<unk>", show_progress=False))
    return tok


def t5():
    tok = Tokenizer(models.Unigram())
    spec = json.loads(tok.to_str())
    spec["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(darts(CHARSMAP)).decode()},
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]}
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")
    tok.decoder = decoders.Metaspace("▁", "always")
    train_unigram(tok)
    end = tok.token_to_id("</s>")
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", end)])
    return tok


def albert():
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", "always")])
    tok.decoder = decoders.Metaspace("▁", "always")
    return train_unigram(tok)


def unigram_bytes():
    rng = random.Random(11)
    vocab = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)] + [(f"<0x{b:02X}>", 0.0) for b in range(256)]
    seen = {v[0] for v in vocab}
    for w in WORDS[:60] + [c for c in "abcdefghijklmnopqrstuvwxyz▁.,ETAO日本語éα"] + ["▁" + w for w in WORDS[:60]] + ["▁t", "th", "he", "in", "er", "an", "日本", "▁▁", "▁▁▁"]:
        if w not in seen:
            seen.add(w)
            vocab.append((w, -rng.uniform(2, 12)))
    tok = Tokenizer(models.Unigram(vocab, 0, True))
    tok.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    tok.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", "first")])
    tok.add_special_tokens(specials("<unk>", "<s>", "</s>"))
    return tok


def bert(lowercase, **kw):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tok.normalizer = normalizers.BertNormalizer(lowercase=lowercase, **kw)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    tok.train_from_iterator(CORPUS[:3] + random_texts(100, random.Random(6)), trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=200, show_progress=False))
    tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tok


def bert_cased():
    return bert(False)


def bert_uncased():
    return bert(True, strip_accents=True, clean_text=True)


def distil_words():  # a word-level model behind several pre-tokenizers
    tok = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tok.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Strip(left=True, right=False)])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.CharDelimiterSplit("-"), pre_tokenizers.FixedLength(4)])
    tok.train_from_iterator(CORPUS, trainers.WordLevelTrainer(vocab_size=500, special_tokens=["[UNK]"], show_progress=False))
    return tok


def behaviors():  # every split behavior, a continuing-subword prefix, the BPE decoder
    tok = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    tok.normalizer = normalizers.NFKD()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("a", "merged_with_next"), pre_tokenizers.Split(Regex("[eo]"), "merged_with_previous"), pre_tokenizers.Split(Regex("[st]+?"), "contiguous"),
        pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Split(Regex(r"\w+"), "isolated", invert=True), pre_tokenizers.Split(Regex(r"x*"), "isolated")])
    tok.decoder = decoders.BPEDecoder("</w>")
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>"], limit_alphabet=150, continuing_subword_prefix="##", end_of_word_suffix="</w>", show_progress=False))
    return tok


def added():  # added tokens with every flag
    tok = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), special=("<s>",))
    tok.normalizer = normalizers.Lowercase()
    tok.add_tokens([
        AddedToken("[NEW]", single_word=True, normalized=False), AddedToken("newtok", single_word=True), AddedToken("newt", normalized=True), AddedToken("Day", normalized=True),
        AddedToken("<pad>", rstrip=True, normalized=False), AddedToken("日", normalized=True), AddedToken("é", normalized=False, lstrip=True, rstrip=True)])
    tok.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False), AddedToken("</S>", normalized=True)])
    return tok


def ctc():
    tok = Tokenizer(models.WordLevel({c: i for i, c in enumerate(["<pad>", "[UNK]", "|"] + list("abcdefghijklmnopqrstuvwxyz' .,!"))}, unk_token="[UNK]"))
    tok.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "|")])
    tok.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tok.decoder = decoders.CTC(cleanup=True)
    return tok


FAMILIES = [gpt2, roberta, llama3, qwen2, o200k, deepseek, starcoder, clip, llama2, mistral, gemma, spm_unk, spm_fuse_unk,
            t5, albert, unigram_bytes, bert_cased, bert_uncased, distil_words, behaviors, added, ctc]


def checksum(ids, decoded, skipped):
    return zlib.crc32((",".join(map(str, ids)) + "\n" + decoded + "\n" + skipped).encode()) & 0xFFFF


def random_ids(size):
    """Sequences of any ids, from a generator that the test repeats."""
    x = 1
    for length in range(1, 201):
        ids = []
        for _ in range(1 + length % 13):
            x = (x * 1103515245 + 12345) % 2**31
            ids.append((x >> 8) % size)
        yield ids


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    texts = HAND + random_texts(2000, random.Random(20240817))
    (OUT / "texts.json").write_text(json.dumps(texts, ensure_ascii=False, separators=(",", ":")) + "\n")
    for family in FAMILIES:
        tok = family()
        name = family.__name__
        spec = json.loads(tok.to_str())
        (OUT / f"{name}.json").write_text(json.dumps(spec, ensure_ascii=False, separators=(",", ":")) + "\n")
        tok = Tokenizer.from_file(str(OUT / f"{name}.json"))
        rows, sums = [], b""
        for i, text in enumerate(texts):
            ids = tok.encode(text).ids
            # The BPE decoder of the library fails on an empty list.
            decoded = tok.decode(ids, skip_special_tokens=False) if ids or family is not behaviors else ""
            skipped = tok.decode(ids, skip_special_tokens=True) if set(ids) - {0} or family is not behaviors else ""
            sums += struct.pack("<H", checksum(ids, decoded, skipped))
            if i < SHOWN:
                rows.append([ids, decoded])
        decodings = b""
        for ids in random_ids(tok.get_vocab_size()):
            added = tok.get_added_tokens_decoder()
            kept = [i for i in ids if i not in added or not added[i].special] if family is behaviors else ids
            decodings += struct.pack("<H", checksum(ids, tok.decode(ids, skip_special_tokens=False), tok.decode(ids, skip_special_tokens=True) if kept else ""))
        (OUT / f"{name}.golden.json").write_text(json.dumps(
            {"rows": rows, "checksums": base64.b64encode(sums).decode(), "decodings": base64.b64encode(decodings).decode()}, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(name, len(spec["model"]["vocab"]), file=sys.stderr)


main()
