#!/usr/bin/env python3
"""Load files written by lorafuse with transformers, diffusers, huggingface_hub and PyTorch, and their files with
lorafuse.

Every step compares all tensors bit for bit and ends the program with status 1 if one differs. Nothing is
downloaded. The folder, a temporary one by default, keeps everything that was written.

  go build -o bin/lorafuse ./cmd/lorafuse
  python scripts/check_safetensors.py --lorafuse bin/lorafuse
"""
import argparse
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import diffusers
import huggingface_hub
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

LLAMA = os.path.join(os.path.dirname(__file__), "..", "testdata", "lm", "llama", "model")
SHARD = "40KB"


def fail(message):
    sys.exit(f"check_safetensors: {message}")


def lorafuse(*arguments, status=0):
    """Output of the program, which must end with this status."""
    run = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    if run.returncode != status:
        fail(f"{' '.join(arguments)}: status {run.returncode}, expected {status}\n{run.stdout}{run.stderr}")
    return run.stdout


def bits(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor.new_zeros(0, dtype=torch.uint8)


def same(what, got, want):
    """Both have the same tensors, bit for bit."""
    if got.keys() != want.keys():
        fail(f"{what}: missing {sorted(want.keys() - got.keys())}, unexpected {sorted(got.keys() - want.keys())}")
    for name, tensor in want.items():
        other = got[name]
        if other.dtype != tensor.dtype or other.shape != tensor.shape or not torch.equal(bits(other), bits(tensor)):
            fail(f"{what}: tensor {name!r} differs")
    print(f"ok  {what}: {len(want)} tensors")


def same_files(what, ours, theirs):
    """Both folders have the same weights and indexes, byte for byte."""
    def weights(directory):
        return {name for name in os.listdir(directory) if ".safetensors" in name}

    if weights(ours) != weights(theirs):
        fail(f"{what}: files {sorted(weights(ours) ^ weights(theirs))} are in one folder only")
    for name in weights(ours):
        with open(os.path.join(ours, name), "rb") as a, open(os.path.join(theirs, name), "rb") as b:
            if a.read() != b.read():
                fail(f"{what}: {name} differs")
    print(f"ok  {what}: {len(weights(ours))} files, byte for byte")


class Pipeline(diffusers.ModelMixin, diffusers.ConfigMixin):
    """A model of diffusers with a few kinds of tensors."""

    @diffusers.configuration_utils.register_to_config
    def __init__(self, width=32):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width, bias=False)
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("steps", torch.arange(7))


def check_transformers(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(LLAMA)
    want = model.state_dict()
    theirs, ours = os.path.join(path, "theirs"), os.path.join(path, "ours")
    model.save_pretrained(theirs, max_shard_size=SHARD)
    lorafuse("convert", theirs, ours, "--max-shard-size", SHARD)
    again, info = transformers.AutoModelForCausalLM.from_pretrained(ours, output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]:
        fail(f"transformers: {info}")
    same("transformers loads our shards", again.state_dict(), want)
    lorafuse("diff", theirs, LLAMA)
    lorafuse("diff", theirs, ours)
    print("ok  lorafuse reads the shards of transformers")

    whole = os.path.join(path, "whole")
    lorafuse("convert", ours, whole)
    same("transformers loads our file", transformers.AutoModelForCausalLM.from_pretrained(whole).state_dict(), want)


def check_diffusers(path):
    torch.manual_seed(0)
    model = Pipeline()
    want = model.state_dict()
    theirs, ours = os.path.join(path, "theirs"), os.path.join(path, "ours")
    model.save_pretrained(theirs, max_shard_size="10KB")
    lorafuse("convert", theirs, ours, "--max-shard-size", "10KB", "--stem", "diffusion_pytorch_model")
    same("diffusers loads our shards", Pipeline.from_pretrained(ours).state_dict(), want)
    lorafuse("diff", theirs, ours)
    print("ok  lorafuse reads the shards of diffusers")

    whole = os.path.join(path, "whole")
    lorafuse("convert", ours, whole, "--stem", "diffusion_pytorch_model")
    same("diffusers loads our file", Pipeline.from_pretrained(whole).state_dict(), want)


def check_hub(path):
    """The hub's splitting, given the tensors in the order of our files."""
    model = Pipeline()
    theirs, ours, plain = (os.path.join(path, name) for name in ("theirs", "ours", "plain"))
    os.makedirs(theirs)
    source = os.path.join(path, "source.safetensors")
    save_file(model.state_dict(), source, metadata={"format": "pt"})
    with safe_open(source, "pt") as f:
        ordered = {name: f.get_tensor(name) for name in f.offset_keys()}
    huggingface_hub.save_torch_state_dict(ordered, theirs, max_shard_size="10KB", filename_pattern="adapter_model{suffix}.safetensors")
    lorafuse("convert", source, ours, "--max-shard-size", "10KB", "--stem", "adapter_model")
    same_files("huggingface_hub writes what we write", ours, theirs)
    again = Pipeline()
    huggingface_hub.load_torch_model(again, ours, filename_pattern="adapter_model{suffix}.safetensors")
    same("huggingface_hub loads our shards", again.state_dict(), model.state_dict())


def check_torch(path):
    """PyTorch's own files, and back by way of ours."""
    torch.manual_seed(1)
    base = torch.randn(6, 8)
    want = {
        "f32": base, "bf16": base.bfloat16(), "f16": base.half(), "f64": base.double(), "transposed": base.t().contiguous(),
        "i64": torch.arange(5), "u8": torch.arange(200, dtype=torch.uint8), "bool": base > 0, "c64": torch.randn(3, dtype=torch.complex64),
        "f8": base.to(torch.float8_e4m3fn), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3), "ключ": torch.ones(2),
    }
    for name, legacy in (("new", False), ("legacy", True)):
        if legacy:
            del want["f8"]  # PyTorch cannot read it back itself
        saved = dict(want, transposed=base.t())
        theirs = os.path.join(path, name + ".pt")
        torch.save(saved, theirs, _use_new_zipfile_serialization=not legacy)
        ours = os.path.join(path, name + ".safetensors")
        lorafuse("convert", theirs, ours)
        same(f"load_file of what we made of a {name} torch.save", load_file(ours), {key: value.contiguous() for key, value in torch.load(theirs, weights_only=True).items()})
        lorafuse("diff", theirs, ours)

        back = os.path.join(path, name + "-back.pt")
        torch.save(load_file(ours), back)
        same("torch.load of what was ours", torch.load(back, weights_only=True), want)
        lorafuse("diff", back, ours)


def main():
    global PROGRAM
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lorafuse", required=True, help="the program to check")
    parser.add_argument("--folder", help="where to write (default: a temporary folder)")
    a = parser.parse_args()
    PROGRAM = os.path.abspath(a.lorafuse)
    with tempfile.TemporaryDirectory() as temporary:
        path = a.folder or temporary
        for check in (check_transformers, check_diffusers, check_hub, check_torch):
            target = os.path.join(path, check.__name__.removeprefix("check_"))
            os.makedirs(target)
            check(target)
    print("all is well")


if __name__ == "__main__":
    main()
