#!/usr/bin/env python3
"""Write models of testdata as GGUF files and compare what llama.cpp computes from them with lorafuse.

For each model, with a random LoRA on all linear layers of its layers:

- the gguf package reads every key and tensor
- logits of llama.cpp from the f32 file, without and with the LoRA as GGUF, equal lorafuse's; so do those of the
  merged file
- 64 tokens that lorafuse generates are those that llama.cpp finds most likely, computing from the f16 file, or less
  likely by no more than its rounding: it multiplies in f16

A model may be refused if the error names the setting or class, but of each class that lorafuse claims to write one must
be computed. CASES changes settings that llama.cpp lacks. Blocks of all types have the bytes of llama.cpp and of the gguf
package.

  pip install gguf xllamacpp==2026.10.11549 llama-cpp-py-sync==0.11548 && python scripts/check_gguf.py --lorafuse output/lorafuse
"""
import argparse
import glob
import json
import multiprocessing
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

TOKENS = 64  # to generate
PROMPT = [33, 7, 2, 19, 40, 11]
TOLERANCE = 2e-5  # of logits from f32 files, relative to the largest
ROUGH = {"gemma": 5e-3, "gemma2": 5e-3, "gemma3": 5e-3}  # llama.cpp looks GELU up in a table of f16
CLOSE = 2e-3  # of logits from f16 files

# TINY is a tokenizer for models without one: each of their first tokens is a character.
TINY = {
    "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "vocab": {chr(ord("A") + i): i for i in range(46)}, "merges": []},
}


class Failed(Exception):
    pass


WIDE = {"sliding_window": 256}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
LONG = {"rope_type": "longrope", "long_factor": [1.3, 2.0, 3.5, 6.0], "short_factor": [1.0, 1.1, 1.25, 1.5]}
# CASES changes models that llama.cpp computes only with other settings, or for other texts.
CASES = {
    "extra/cohere": [{"config": {"tie_word_embeddings": True, "use_qk_norm": False, "attention_bias": False}, "drop": ("lm_head", "_norm", "bias")},
                     {"config": {"tie_word_embeddings": True, "attention_bias": False, "num_hidden_layers": 64}, "drop": ("lm_head", "bias"), "layers": 64}],
    "extra/cohere2": [{"config": {"tie_word_embeddings": True, "attention_bias": False}, "drop": ("lm_head", "bias")}],
    "extra/exaone4": [{"config": {"num_hidden_layers": 64}, "layers": 64}],
    "extra/exaone4-full": [{"config": {"head_dim": 12}, "heads": 12}],
    "extra/gemma2": [{"config": {"query_pre_attn_scalar": 10}}],
    "extra/gemma3-linear": [{"config": {"query_pre_attn_scalar": 10}}],
    "extra/gemma3-whole": [{"config": {"query_pre_attn_scalar": 10}}],
    "extra/gemma3-whole-untied": [{"config": {"query_pre_attn_scalar": 12, "attention_bias": False}, "drop": ("bias",)}],
    "extra/glm": [{"config": {"head_dim": 8, "partial_rotary_factor": 0.5}, "heads": 8}],
    "extra/glm4": [{"config": {"partial_rotary_factor": 0.5}}],
    "extra/granite-tied": [{"config": {"hidden_act": "silu"}}],
    "extra/llava-pixtral": [{"config": WIDE}],
    "extra/mistral-window": [{"config": WIDE}],
    "extra/mixtral": [{"config": WIDE}],
    "extra/olmo3": [{"config": {"rope_theta": 5e5, "rope_scaling": {**YARN, "attention_factor": 1.2}}}],
    # llama.cpp chooses the long or short factors by the length of its context, here 256.
    "extra/phi3": [{"config": {**WIDE, "original_max_position_embeddings": n, "rope_scaling": {**LONG, "original_max_position_embeddings": n}}} for n in (4, 256)],
    "extra/phi3-partial": [{"config": {"hidden_act": "silu", "original_max_position_embeddings": n, "rope_parameters": {
        **LONG, "original_max_position_embeddings": n, "attention_factor": 1.7, "partial_rotary_factor": 0.7, "rope_theta": 1000.0}}} for n in (4, 256)],
    "extra/qwen2-mixed-windows": [{"config": WIDE}],
    "extra/qwen3-vl-untied": [{"config": {"attention_bias": False}, "drop": ("bias",)}],
    "extra/smollm3": [{"config": {"sliding_window": 256, "no_rope_layers": [1, 1, 1, 0], "attention_bias": False, "mlp_bias": False}, "drop": ("bias",)}],
    "extra/yarn-attention-factor": [{"config": {"rope_parameters": {**YARN, "rope_theta": 100.0, "attention_factor": 1.3}}}],
    "lm/mistral": [{"config": WIDE}],
    # llama.cpp does not read the epsilon of qwen2vl's norms.
    "extra/qwen2-vl": [{"config": {"sliding_window": 256, "rms_norm_eps": 1e-12}}],
    "extra/qwen2-5-vl": [{"config": {"rms_norm_eps": 1e-12}}],
}


def say(condition, text):
    if not condition:
        raise Failed(text)


def program(*args):
    """The standard output of lorafuse, or its error."""
    r = subprocess.run([options.lorafuse, *args], capture_output=True, text=True)
    return (r.stdout, "") if r.returncode == 0 else (r.stdout, r.stderr.strip() or f"status {r.returncode}")


def wants(*args):
    out, error = program(*args)
    say(not error, f"lorafuse {args[0]}: {error}")
    return out


def read_header(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(n))


def write_safetensors(path, tensors):
    """tensors: by name, of float32 or int64."""
    header, at, blobs = {}, 0, []
    for name, x in tensors.items():
        b = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": {"float32": "F32", "int64": "I64"}[str(x.dtype)], "shape": list(x.shape), "data_offsets": [at, at + len(b)]}
        at += len(b)
        blobs.append(b)
    h = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(blobs))


def read_safetensors(path):
    """All tensors, as float32."""
    tensors = {}
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        start = f.tell()
        for name, t in header.items():
            if name == "__metadata__":
                continue
            f.seek(start + t["data_offsets"][0])
            raw = f.read(t["data_offsets"][1] - t["data_offsets"][0])
            if t["dtype"] == "BF16":
                x = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                x = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[t["dtype"]]).astype(np.float32)
            tensors[name] = x.reshape(t["shape"])
    return tensors


def prepare(source, to, variant):
    """A copy of a model folder with a tokenizer and longer texts, changed as CASES says."""
    shutil.copytree(source, to)
    path = os.path.join(to, "config.json")
    with open(path) as f:
        config = json.load(f)
    text = config.get("text_config", config)
    if "max_position_embeddings" in text:
        text["max_position_embeddings"] = 2 * (TOKENS + len(PROMPT))
    text["eos_token_id"] = []  # texts have all 64 tokens
    text.update(variant.get("config", {}))
    with open(path, "w") as f:
        json.dump(config, f)
    if os.path.exists(os.path.join(to, "generation_config.json")):
        os.remove(os.path.join(to, "generation_config.json"))
    if not os.path.exists(os.path.join(to, "tokenizer.json")):
        with open(os.path.join(to, "tokenizer.json"), "w") as f:
            json.dump(TINY, f)
    if variant.keys() & {"drop", "heads", "layers"}:
        weights = os.path.join(to, "model.safetensors")
        write_safetensors(weights, changed(read_safetensors(weights), text, variant))
    return config


def changed(tensors, text, variant):
    """Tensors with fewer or more layers, without some, and with heads of other sizes, drawn anew."""
    rng, out = np.random.default_rng(3), {}
    kv = text.get("num_key_value_heads") or text["num_attention_heads"]
    rows = {"q_proj": text["num_attention_heads"], "k_proj": kv, "v_proj": kv, "q_norm": 1, "k_norm": 1}
    for name, x in tensors.items():
        if any(d in name for d in variant.get("drop", ())):
            continue
        module = name.split(".")[-2]
        if "heads" in variant and "self_attn" in name:
            if module in rows:
                x = np.resize(rng.normal(x.mean(), x.std() + 1e-3, x.size), (rows[module] * variant["heads"], *x.shape[1:]))
            elif module == "o_proj":
                x = rng.normal(0, x.std(), (x.shape[0], rows["q_proj"] * variant["heads"]))
        out[name] = x.astype(np.float32)
    if "layers" in variant:
        old = 1 + max(int(n.split(".layers.")[1].split(".")[0]) for n in out if ".layers." in n)
        for name in [n for n in out if ".layers." in n]:
            before, after = name.split(".layers.")
            i, rest = after.split(".", 1)
            for j in range(int(i) + old, variant["layers"], old):
                out[f"{before}.layers.{j}.{rest}"] = out[name] * (0.3 if rest.startswith(("self_attn.o_proj", "mlp.down_proj")) else 1)
    return out


def random_lora(model, to):
    """A PEFT adapter of rank 3 on the linear layers of all layers, with rsLoRA and one other rank."""
    rng, tensors, modules = np.random.default_rng(5), {}, []
    for name, t in sorted(read_header(os.path.join(model, "model.safetensors")).items()):
        module = name.removesuffix(".weight")
        if name == "__metadata__" or module == name or len(t["shape"]) != 2 or ".layers." not in name or "norm" in name:
            continue
        if any(x in name for x in ("vision", "visual", "projector", "experts", "mlp.gate.", "block_sparse_moe", "router", "per_layer")):
            continue
        rows, width = t["shape"]
        rank = 5 if module.endswith("o_proj") else 3
        modules.append(module)
        tensors[f"base_model.model.{module}.lora_A.weight"] = rng.normal(0, 0.3, (rank, width)).astype(np.float32)
        tensors[f"base_model.model.{module}.lora_B.weight"] = rng.normal(0, 0.1, (rows, rank)).astype(np.float32)
    if not modules:
        return False
    os.mkdir(to)
    write_safetensors(os.path.join(to, "adapter_model.safetensors"), tensors)
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 3, "lora_alpha": 6, "use_rslora": True, "rank_pattern": {"o_proj": 5},
              "target_modules": modules, "bias": "none", "base_model_name_or_path": model, "inference_mode": True}
    with open(os.path.join(to, "adapter_config.json"), "w") as f:
        json.dump(config, f)
    return True


def library():
    """llama.cpp: the declarations of one package, the library of the other, which runs on more systems."""
    import cffi
    import importlib.util
    from llama_cpp_py_sync import _cffi_bindings

    ffi = cffi.FFI()
    ffi.cdef(_cffi_bindings._LLAMA_H_CDEF + "size_t ggml_quantize_chunk(int, const float *, void *, int64_t, int64_t, int64_t, const float *);")
    return ffi, ffi.dlopen(glob.glob(os.path.join(importlib.util.find_spec("xllamacpp").submodule_search_locations[0], "xllamacpp*.so"))[0])


class Llama:
    """A model of llama.cpp. It computes in f32 as far as the types of the file allow."""

    def __init__(self, path, context):
        self.ffi, self.lib, self.log = *library(), []
        self.callback = self.ffi.callback("ggml_log_callback")(lambda level, text, _: self.log.append(self.ffi.string(text).decode(errors="replace")) if level == 4 else None)
        self.lib.llama_log_set(self.callback, self.ffi.NULL)
        self.lib.llama_backend_init()
        p = self.lib.llama_model_default_params()
        p.n_gpu_layers = 0
        self.model = self.lib.llama_model_load_from_file(path.encode(), p)
        say(self.model != self.ffi.NULL, "llama.cpp does not load the file: " + "".join(self.log).strip())
        c = self.lib.llama_context_default_params()
        c.n_ctx = c.n_batch = c.n_ubatch = context
        c.n_threads = c.n_threads_batch = 1
        c.flash_attn_type = 0
        c.type_k = c.type_v = 0  # f32
        self.context = self.lib.llama_init_from_model(self.model, c)
        say(self.context != self.ffi.NULL, "llama.cpp makes no context: " + "".join(self.log).strip())
        self.vocab = self.lib.llama_model_get_vocab(self.model)
        self.width = self.lib.llama_vocab_n_tokens(self.vocab)

    def adapt(self, path):
        a = self.lib.llama_adapter_lora_init(self.model, path.encode())
        say(a != self.ffi.NULL, "llama.cpp does not load the LoRA: " + "".join(self.log).strip())
        adapters, scales = self.ffi.new("struct llama_adapter_lora *[]", [a]), self.ffi.new("float[]", [1.0])
        say(self.lib.llama_set_adapters_lora(self.context, adapters, 1, scales) == 0, "llama.cpp does not apply the LoRA")

    def tokens(self, text, special=True):
        raw, out = text.encode(), self.ffi.new("int32_t[]", 4096)
        n = self.lib.llama_tokenize(self.vocab, raw, len(raw), out, 4096, special, True)
        return list(out[0:n])

    def logits(self, ids):
        """Logits at each position of a text."""
        b = self.lib.llama_batch_init(len(ids), 0, 1)
        b.n_tokens = len(ids)
        for i, t in enumerate(ids):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = t, i, 1, 1
            b.seq_id[i][0] = 0
        say(self.lib.llama_decode(self.context, b) == 0, "llama.cpp does not compute the text: " + "".join(self.log).strip())
        rows = [np.frombuffer(self.ffi.buffer(self.lib.llama_get_logits_ith(self.context, i), 4 * self.width), np.float32).copy() for i in range(len(ids))]
        self.lib.llama_batch_free(b)
        return np.stack(rows)


def compare(model, ids, logits, path, *adapter):
    """The largest difference of lorafuse's logits, relative to the largest logit."""
    write_safetensors(path, {"input_ids": np.array([ids], np.int64), "logits": logits[None]})
    out, error = program("compare", "--model", model, "--golden", path, "--tolerance", "1e9", "--json", *adapter)
    say(not error, f"lorafuse compare: {error}")
    return json.loads(out)["relative_difference"]


def read_back(path):
    """All tensors of a file in f32 by the gguf package, which also reads all keys."""
    import gguf

    r = gguf.GGUFReader(path)
    for name, field in r.fields.items():
        value = field.contents()
        say(value is not None, f"key {name}: the gguf package reads nothing")
    tensors = {}
    for t in r.tensors:
        x = t.data if t.tensor_type in (0, 1) else gguf.quants.dequantize(t.data, t.tensor_type)
        tensors[t.name] = (t.tensor_type, np.array(t.data), np.asarray(x, np.float32))
    return r, tensors


def blocks(_, kinds, folder):
    """Bytes of quantised tensors are those of llama.cpp and of the gguf package, as far as this writes the type."""
    import gguf

    ffi, ggml = library()
    model, rng = os.path.join(folder, "model"), np.random.default_rng(1)
    os.mkdir(model)
    width, units, vocab = 256, 512, 96
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": units, "vocab_size": vocab,
              "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    shapes = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (width // 2, width), "self_attn.v_proj": (width // 2, width), "self_attn.o_proj": (width, width),
              "mlp.gate_proj": (units, width), "mlp.up_proj": (units, width), "mlp.down_proj": (width, units), "input_layernorm": (width,), "post_attention_layernorm": (width,)}
    tensors = {f"model.layers.0.{name}.weight": shape for name, shape in shapes.items()}
    tensors |= {"model.embed_tokens.weight": (vocab, width), "lm_head.weight": (vocab, width), "model.norm.weight": (width,)}
    scale = lambda shape: np.exp(rng.normal(-3, 1, (shape[0], *[1] * (len(shape) - 1))))
    write_safetensors(os.path.join(model, "model.safetensors"), {name: (rng.normal(0, 1, shape) * scale(shape)).astype(np.float32) for name, shape in tensors.items()})
    for name, x in (("config", config), ("tokenizer", TINY)):
        with open(os.path.join(model, name + ".json"), "w") as f:
            json.dump(x, f)
    counts = {}
    for kind in ["f32", *kinds]:
        path = os.path.join(folder, kind + ".gguf")
        wants("merge", "--model", model, "--to", "gguf", "--dtype", kind, "--output", path)
        _, tensors = read_back(path)
        if kind == "f32":
            floats = tensors
        say(tensors.keys() == floats.keys(), f"{kind}: other tensors")
        for name, (t, raw, _) in tensors.items():
            t, x = gguf.GGMLQuantizationType(t), np.ascontiguousarray(floats[name][2])
            n, size = gguf.GGML_QUANT_SIZES[t]
            want = np.zeros(x.size // n * size, np.uint8)
            ggml.ggml_quantize_chunk(int(t), ffi.from_buffer("float *", x), ffi.from_buffer(want), 0, x.size // x.shape[-1], x.shape[-1], ffi.NULL)
            got = np.ascontiguousarray(raw).view(np.uint8).reshape(-1)
            say(np.array_equal(got, want), f"{kind}: {name} of type {t.name}: {np.mean(got != want):.2%} of its bytes differ from llama.cpp's")
            try:
                own = np.ascontiguousarray(gguf.quants.quantize(x, t)).view(np.uint8).reshape(-1)
                say(np.array_equal(got, own), f"{kind}: {name} of type {t.name}: {np.mean(got != own):.2%} of its bytes differ from the gguf package's")
            except NotImplementedError:
                pass  # it only reads this type
            counts[t.name] = counts.get(t.name, 0) + 1
    return "ok", ", ".join(f"{n} tensors of {t}" for t, n in counts.items())


def likely(llama, ids, answer):
    """Each token of an answer is the one that llama.cpp finds most likely, or as likely as that."""
    ties = 0
    for i, (row, token) in enumerate(zip(llama.logits(ids + answer[:-1])[len(ids) - 1:], answer)):
        if row.argmax() != token:
            by = row.max() - row[token]
            say(by <= CLOSE * np.abs(row).max(), f"token {i} is {row.argmax()} in llama.cpp, {token} here; its logit is larger by {by:.2g}")
            ties += 1
    return f"{len(answer)} tokens" + (f", {ties} of them as likely as llama.cpp's" if ties else "")


def answer(path, prompt, model, adapter="", lora=""):
    """Compares what lorafuse generates with llama.cpp's logits, from a GGUF file without or with a LoRA."""
    llama = Llama(path, 256)
    if lora:
        llama.adapt(lora)
    ids = llama.tokens(prompt)
    got = json.loads(wants("generate", "--model", model, *(["--adapter", adapter] if adapter else []), "--prompt", prompt, "--json", "-n", str(TOKENS), "--temperature", "0"))
    say(got["prompt_tokens"] == len(ids), f"prompt: {len(ids)} tokens in llama.cpp, {got['prompt_tokens']} here")
    return likely(llama, ids, got["ids"])


def case(source, variant, folder):
    """Checks a model; returns what was checked."""
    model = os.path.join(folder, "model")
    config = prepare(source, model, variant)
    plain = os.path.join(folder, "f32.gguf")
    _, error = program("merge", "--model", model, "--to", "gguf", "--dtype", "f32", "--output", plain)
    if error:
        say("not supported in GGUF: " in error, error)
        return "refused", error.split("not supported in GGUF: ")[1]
    r, _ = read_back(plain)
    arch = r.fields["general.architecture"].contents()
    length = r.fields[arch + ".context_length"].contents()
    text = config.get("text_config", config)
    ids = [(7 * i * i + 3 * i + 5) % min(46, text["vocab_size"]) for i in range(min(TOKENS, length))]
    golden = os.path.join(folder, "golden.safetensors")
    tolerance = ROUGH.get(arch, TOLERANCE * max(1, text['num_hidden_layers'] / 8))
    llama = Llama(plain, 256)
    said = []
    worst = compare(model, ids, llama.logits(ids), golden)
    say(worst <= tolerance, f"logits differ by {worst:.2g} of the largest")
    said.append(f"{arch}, {len(ids)} tokens: {worst:.1e}")

    adapter, lora = os.path.join(folder, "adapter"), os.path.join(folder, "lora.gguf")
    if random_lora(model, adapter):
        out, error = program("adapter", "convert", adapter, lora, "--model", model, "--to", "gguf")
        if error:
            said.append("LoRA refused: " + error)
        else:
            adapted = Llama(plain, 256)
            adapted.adapt(lora)
            got = adapted.logits(ids)
            worst = compare(model, ids, got, golden, "--adapter", adapter)
            say(worst <= tolerance, f"logits with LoRA differ by {worst:.2g} of the largest")
            said.append(f"LoRA {worst:.1e}")
        merged = os.path.join(folder, "merged.gguf")
        wants("merge", "--model", model, "--adapter", adapter, "--to", "gguf", "--dtype", "f32", "--output", merged)
        worst = compare(model, ids, Llama(merged, 256).logits(ids), golden, "--adapter", adapter)
        say(worst <= tolerance, f"logits of the merged file differ by {worst:.2g} of the largest")
        said.append(f"merged {worst:.1e}")

    if length >= TOKENS + len(PROMPT):
        half = os.path.join(folder, "f16.gguf")
        wants("merge", "--model", model, "--to", "gguf", "--dtype", "f16", "--output", half)
        prompt = "".join(chr(ord("A") + i) for i in PROMPT)
        if os.path.exists(os.path.join(source, "tokenizer.json")):
            prompt = "The quick brown fox, 12 of 345: it's "
        said.append(answer(half, prompt, model))
        say(said[-1].startswith(f"{TOKENS} tokens"), said[-1])
    return "ok", "; ".join(said)


def run(queue, f, *args):
    try:
        queue.put(f(*args))
    except Failed as e:
        queue.put(("FAIL", str(e)))
    except Exception as e:  # of the libraries
        queue.put(("FAIL", f"{type(e).__name__}: {e}"))


def apart(*args):
    """Runs a case in a process of its own, which llama.cpp may end."""
    queue = multiprocessing.Queue()
    p = multiprocessing.Process(target=run, args=(queue, *args))
    p.start()
    while p.is_alive() and queue.empty():
        p.join(0.02)
    result = queue.get() if not queue.empty() or p.exitcode == 0 else ("FAIL", f"llama.cpp ends the process with {p.exitcode}")
    p.join()
    return result


def main():
    global options
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--lorafuse", default="output/lorafuse")
    p.add_argument("--answer", nargs="+", metavar="ARG", help="only compare an answer: FILE.gguf PROMPT MODEL [ADAPTER LORA.gguf]")
    p.add_argument("models", nargs="*")
    options = p.parse_args()
    if options.answer:
        try:
            return print("ok     ", answer(*options.answer))
        except Failed as e:
            sys.exit(f"FAIL    {e}")
    began, bad, computed, claimed = time.time(), 0, set(), set()
    models = options.models or sorted(glob.glob("testdata/lm/*/model") + glob.glob("testdata/extra/*/"))
    tasks = [(case, m, v) for m in models for v in CASES.get(short(m), [{}])]
    for f, source, variant in tasks + [(blocks, "blocks", ["f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k"])]:
        with tempfile.TemporaryDirectory() as folder:
            status, text = apart(f, source, variant, folder)
        bad += status == "FAIL"
        print(f"{status:8}{short(source)} {variant or ''}: {text}", flush=True)
        if status == "ok" and f == case:
            with open(os.path.join(source, "config.json")) as config:
                computed.update(json.load(config)["architectures"])
        if status == "refused" and text.startswith("architecture"):
            claimed.update(text.split("; supported: ")[1].split(", "))
    if not options.models and claimed - computed:
        bad += 1
        print("FAIL    never computed: " + ", ".join(sorted(claimed - computed)))
    print(f"{len(computed)} classes, {time.time() - began:.0f} s")
    sys.exit(1 if bad else 0)


def short(source):
    return source.replace("testdata/", "").rstrip("/").removesuffix("/model")


if __name__ == "__main__":
    main()
