#!/usr/bin/env python3
"""Write safetensors/testdata/written and safetensors/testdata/sharded: what Python writes, for lorafuse to write again.

written/*.safetensors come from the serializer of the Python package: odd names, empty tensors, scalars,
packed types, metadata. The types that Python cannot write (F6_E2M3, F6_E3M2) are in every_dtype.safetensors,
which scripts/rust_goldens writes with the Rust crate: (cd scripts/rust_goldens && cargo run)

sharded/NAME are models of a few hundred bytes in shards, as transformers, diffusers and huggingface_hub save
them; order.json lists the tensors in the order in which they were given, and the size of a shard.

  python scripts/make_safetensors_goldens.py
"""
import ctypes
import json
import os
import shutil
import sys
import tempfile

import diffusers
import huggingface_hub
import safetensors
import torch
import transformers
from diffusers.configuration_utils import ConfigMixin, register_to_config
from safetensors._safetensors_rust import TensorSpec, serialize

TESTDATA = os.path.join(os.path.dirname(__file__), "..", "safetensors", "testdata")
PINNED = {safetensors: "0.8.0", torch: "2.15.0", transformers: "5.23.0", diffusers: "0.42.1", huggingface_hub: "2.4.0"}
SHARD = 600  # bytes


def write(name, tensors, metadata=None):
    """One file: tensors are (name, dtype, shape as torch has it, bytes)."""
    keep = []  # keep tensors alive: the serializer receives addresses
    specs = {}
    for key, dtype, shape, data in tensors:
        buffer = ctypes.create_string_buffer(data, len(data) or 1)
        keep.append(buffer)
        specs[key] = TensorSpec(dtype=dtype, shape=shape, data_ptr=ctypes.addressof(buffer), data_len=len(data))
    with open(os.path.join(TESTDATA, "written", name + ".safetensors"), "wb") as f:
        f.write(serialize(specs, metadata))


def files():
    odd = ["", " ", "a.b", "日本語", "ключ", "🙂", "é", "e\u0301", '"', "\\", "/", "<>&'", "\u2028\u2029", "\x7f", "\x00", "\x1f", "\b\f\n\r\t", "\ufeff", "\uffff", "../up", "x" * 300]
    write("names", [(key, "uint8", [1], bytes([i])) for i, key in enumerate(odd)])
    write("names_of_many_types", [(key, dtype, [1], bytes(size)) for key in ("b", "a", "B", "é") for dtype, size in (("float32", 4),) ]
          + [("m" + key, dtype, [1], bytes(size)) for key in ("b", "a") for dtype, size in (("int64", 8), ("bool", 1), ("bfloat16", 2))])
    write("empty_tensors", [("b", "float32", [0], b""), ("a", "float32", [3, 0, 7], b""), ("full", "float32", [1], b"abcd"), ("none", "bool", [0], b""), ("more", "uint64", [0, 2], b"")])
    write("scalars", [("f32", "float32", [], b"abcd"), ("i64", "int64", [], b"abcdefgh"), ("u8", "uint8", [], b"z"), ("c64", "complex64", [], b"abcdefgh")])
    write("packed", [("f4", "float4_e2m1fn_x2", [3, 2], b"abcdef"), ("odd", "uint8", [3], b"xyz"), ("f32", "float32", [1], b"abcd")])
    write("high_rank", [("a", "uint8", [1] * 12 + [3], b"xyz")])
    write("metadata_one", [("a", "uint8", [1], b"x")], {"format": "pt"})
    write("metadata_odd", [], {"\x7f\x00\"é🙂\u2028": "\\/\b</script>\r\n\x1b"})
    write("metadata_empty", [("a", "uint8", [1], b"x")], {})
    write("metadata_long", [], {"config": json.dumps({"a": list(range(300)), "b": "é"})})
    write("nothing", [])


def tensors():
    """Sizes such that shards end early, exactly and late, and one tensor is larger than a shard."""
    generator = torch.Generator().manual_seed(4)
    sizes = {"embed": (10, 5), "a": (100,), "b": (10, 5), "late": (7, 3), "large": (40, 5), "c": (150,), "d": (1,), "empty": (0, 4), "e": (3, 3, 3)}
    return {key: torch.randn(size, generator=generator) for key, size in sizes.items()}


class Transformers(transformers.PreTrainedModel):
    config_class = transformers.PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        for key, value in tensors().items():
            self.register_parameter(key, torch.nn.Parameter(value))
        self.post_init()

    def _init_weights(self, module):
        pass


class Diffusers(diffusers.ModelMixin, ConfigMixin):
    @register_to_config
    def __init__(self):
        super().__init__()
        for key, value in tensors().items():
            self.register_parameter(key, torch.nn.Parameter(value))


def sharded(name, save):
    """Keeps the files that save writes to a folder, except configurations."""
    target = os.path.join(TESTDATA, "sharded", name)
    os.makedirs(target)
    with tempfile.TemporaryDirectory() as folder:
        save(folder)
        for file in os.listdir(folder):
            if ".safetensors" in file:
                shutil.copy(os.path.join(folder, file), target)
    for file in os.listdir(target):
        os.chmod(os.path.join(target, file), 0o644)
    with open(os.path.join(target, "order.json"), "w") as f:
        json.dump({"shard": SHARD, "order": list(tensors())}, f)


def models():
    limit = f"{SHARD / 1000}KB"
    ours, theirs = Transformers(transformers.PretrainedConfig()), Diffusers()
    for variant in (None, "fp16"):
        end = "" if variant is None else "-" + variant
        sharded("transformers" + end, lambda d: ours.save_pretrained(d, max_shard_size=limit, variant=variant))
        sharded("diffusers" + end, lambda d: theirs.save_pretrained(d, max_shard_size=limit, variant=variant))
    for stem in ("adapter_model", "text_encoder"):
        sharded("hub-" + stem, lambda d: huggingface_hub.save_torch_state_dict(tensors(), d, max_shard_size=limit, filename_pattern=stem + "{suffix}.safetensors"))


def main():
    for module, version in PINNED.items():
        if module.__version__.split("+")[0] != version:
            sys.exit(f"{module.__name__} is {module.__version__}, the goldens are written with {version}")
    for folder in ("written", "sharded"):
        path = os.path.join(TESTDATA, folder)
        if os.path.isdir(path):
            for name in os.listdir(path):
                if name != "every_dtype.safetensors":
                    (shutil.rmtree if os.path.isdir(os.path.join(path, name)) else os.remove)(os.path.join(path, name))
        os.makedirs(path, exist_ok=True)
    files()
    models()


if __name__ == "__main__":
    main()
