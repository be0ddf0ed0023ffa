"""Writes internal/gguf/testdata/blocks.gguf with the gguf package of llama.cpp.

For each block type T there are tensors T (blocks) and T.float (the package's
conversion of them to f32). The tensor x was quantised to x.T by the package, and, if
--ggml names ggml's shared library, to x.q4_k and x.q6_k by its reference functions.

    python scripts/make_gguf_goldens.py [--ggml .../libggml-base.so]
"""
import argparse
import ctypes
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", default="internal/gguf/testdata/blocks.gguf")
parser.add_argument("--ggml", help="libggml-base.so")
args = parser.parse_args()

rng = np.random.default_rng(7)
w = gguf.GGUFWriter(args.out, "test")
for name, value in {"u8": 200, "i8": -3, "u16": 60000, "i16": -7, "u32": 4000000000, "i32": -9, "u64": 1 << 60, "i64": -(1 << 60)}.items():
    getattr(w, "add_" + {"u": "uint", "i": "int"}[name[0]] + name[1:])("kind." + name, value)
w.add_float32("kind.f32", 0.25)
w.add_float64("kind.f64", 0.1)
w.add_bool("kind.bool", True)
w.add_string("kind.string", "añ")
w.add_array("kind.strings", ["a", "", "c"])
w.add_array("kind.ints", [1, 2, 3])
w.add_array("kind.floats", [0.5, 1.5])


def blocks(t, rows=2, per_row=256):
    n, size = gguf.GGML_QUANT_SIZES[t]
    raw = rng.integers(0, 256, (rows, per_row // n, size), dtype=np.uint8)
    # Scales are halves: keep them finite.
    halves = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
              T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.F16: [0], T.BF16: []}.get(t, [])
    for at in halves:
        raw[:, :, at:at + 2] = rng.normal(0, 0.05, raw.shape[:2]).astype(np.float16)[..., None].view(np.uint8)
    if t == T.MXFP4:
        raw[:, :, 0] = rng.integers(100, 140, raw.shape[:2])
        raw[0, :3, 0] = [0, 1, 2]
    if t == T.BF16:
        raw = rng.normal(0, 1, (rows, per_row)).astype(np.float32).view(np.uint32)
        raw = (raw >> 16).astype(np.uint16).view(np.uint8)
    return np.ascontiguousarray(raw).reshape(rows, -1)


def add(name, data, t):
    shape = gguf.quant_shape_from_byte_shape(data.shape, t) if data.dtype == np.uint8 else data.shape
    w.add_tensor(name, data, raw_shape=data.shape if data.dtype == np.uint8 else shape, raw_dtype=t)


for t in [T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.MXFP4]:
    raw = blocks(t)
    name = t.name.lower()
    add(name, raw, t)
    values = raw.view(np.float16).astype(np.float32) if t == T.F16 else gguf.quants.dequantize(raw, t)
    w.add_tensor(name + ".float", values.astype(np.float32))

x = rng.normal(0, 1, (8, 256)).astype(np.float32) * np.exp(rng.normal(0, 1, (8, 1))).astype(np.float32)
x[0] = 0
x[1, :64] = 1e-7
x[2] = np.abs(x[2])
x[3, :40] = 0
x[4] = rng.normal(0, 1, 256).round()
w.add_tensor("x", x)
for t in [T.F16, T.BF16, T.Q4_0, T.Q8_0]:
    add("x." + t.name.lower(), x.astype(np.float16).view(np.uint8) if t == T.F16 else gguf.quants.quantize(x, t).view(np.uint8), t)
if args.ggml:
    lib = ctypes.CDLL(args.ggml)
    for name, t in [("q4_K", T.Q4_K), ("q6_K", T.Q6_K), ("q4_0", T.Q4_0), ("q8_0", T.Q8_0)]:
        n, size = gguf.GGML_QUANT_SIZES[t]
        raw = np.zeros((8, 256 // n * size), np.uint8)
        f = getattr(lib, f"quantize_row_{name}_ref")
        f.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        f.restype = None
        f(x.ctypes.data, raw.ctypes.data, x.size)
        if name.endswith("K"):
            add("x." + name.lower(), raw, t)
        else:
            print(name, "of ggml equals the package's:", (raw == gguf.quants.quantize(x, t)).all())
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
print(pathlib.Path(args.out).stat().st_size, "bytes")
