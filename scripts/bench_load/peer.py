#!/usr/bin/env python3
"""The Python library and torch, measured: peer.py OP FILE [OUT] [REPEAT].

Does OP on FILE, REPEAT times in this process, and prints one line of JSON: the seconds of each time and the most
memory that the process ever held. Imports and setup before an operation are not timed, nor is cleanup after
it.
"""
import json
import struct
import sys
import time

PAGE = 4096


def load_file(path, out):
    """Every tensor as a view of the mapped file."""
    from safetensors.torch import load_file

    return lambda: load_file(path)


def load_file_touch(path, out):
    """Every page of every tensor resident."""
    import torch
    from safetensors.torch import load_file

    def run():
        tensors = load_file(path)
        return [int(t.view(torch.uint8).flatten()[::PAGE].sum()) for t in tensors.values()], tensors

    return run


def load_file_clone(path, out):
    """Every tensor in memory of its own."""
    from safetensors.torch import load_file

    return lambda: {name: t.clone() for name, t in load_file(path).items()}


def load_file_float(path, out):
    """Every tensor as f32."""
    from safetensors.torch import load_file

    return lambda: {name: t.float() for name, t in load_file(path).items()}


def load_file_widen(path, out):
    """Every tensor as f32, in memory that has been in use before."""
    from safetensors.torch import load_file

    wide = {name: t.float() for name, t in load_file(path).items()}
    return lambda: [wide[name].copy_(t) for name, t in load_file(path).items()]


def convert(path, out):
    """A new file with every tensor as f32."""
    from safetensors.torch import load_file, save_file

    return lambda: save_file({name: t.float() for name, t in load_file(path).items()}, out)


def load_bytes(path, out):
    """Every tensor from the bytes of the file."""
    from safetensors.torch import load

    def run():
        with open(path, "rb") as f:
            return load(f.read())

    return run


def safe_open_one(path, out):
    """Open, and read one tensor."""
    from safetensors import safe_open

    with safe_open(path, "pt") as f:
        names = sorted(f.keys())
    name = names[len(names) // 2]

    def run():
        with safe_open(path, "pt") as f:
            return f.get_tensor(name).clone()

    return run


def safe_open_header(path, out):
    """Open, which parses the header."""
    from safetensors import safe_open

    return lambda: safe_open(path, "np")


def json_loads(path, out):
    """Parse the header as JSON, and check nothing."""
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        text = f.read(n)
    return lambda: json.loads(text)


def fromfile(path, out):
    """The bytes of the file in an array."""
    import numpy as np

    return lambda: np.fromfile(path, dtype=np.uint8)


def torch_load(path, out):
    """Every tensor of a .pt file, in memory of its own."""
    import torch

    return lambda: torch.load(path, weights_only=True)


def torch_load_mmap(path, out):
    """Every tensor of a .pt file, as a view of the mapped file."""
    import torch

    return lambda: torch.load(path, weights_only=True, mmap=True)


def in_memory(path):
    from safetensors.torch import load_file

    return {name: t.clone() for name, t in load_file(path).items()}


def save_file(path, out):
    from safetensors.torch import save_file

    tensors = in_memory(path)
    return lambda: save_file(tensors, out)


def torch_save(path, out):
    import torch

    tensors = in_memory(path)
    return lambda: torch.save(tensors, out)


OPERATIONS = [
    load_file, load_file_touch, load_file_clone, load_file_float, load_file_widen, convert, load_bytes, safe_open_one, safe_open_header,
    json_loads, fromfile, torch_load, torch_load_mmap, save_file, torch_save,
]


def peak_rss():
    try:
        with open("/proc/self/status") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return 0


def main():
    operations = {f.__name__: f for f in OPERATIONS}
    if len(sys.argv) < 3 or sys.argv[1] not in operations:
        sys.exit(f"usage: {sys.argv[0]} OP FILE [OUT] [REPEAT], OP one of {', '.join(operations)}")
    op, path = sys.argv[1:3]
    out = sys.argv[3] if len(sys.argv) > 3 else ""
    run = operations[op](path, out)
    seconds = []
    for _ in range(int(sys.argv[4]) if len(sys.argv) > 4 else 1):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
        del result
    print(json.dumps({"seconds": seconds, "peak_rss": peak_rss()}))


if __name__ == "__main__":
    main()
