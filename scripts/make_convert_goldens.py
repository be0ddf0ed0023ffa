"""Writes tensor/testdata/convert.json: what PyTorch makes of every 16-bit and 8-bit float when
it widens them, and of millions of float32 numbers when it narrows them.

    python scripts/make_convert_goldens.py tensor/testdata/convert.json

Results are given as checksums, the first 8 bytes of SHA-256: one for all codes that are widened,
and one for each sign and each 16 exponents of narrowed numbers; and some in full. NaN counts as one
code, without sign and payload.
"""

import hashlib
import json
import sys

import numpy as np
import torch

# The mantissas of the float32 numbers: all mantissas of binary16, the midpoints between
# neighbours, and the nearest float32 numbers of each. Types of fewer bits, and subnormals, meet
# theirs among them.
def mantissas():
    kept = np.arange(1 << 10, dtype=np.uint32) << 13
    low = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF], dtype=np.uint32)
    return (kept[:, None] | low[None, :]).ravel()


def checksum(a):
    return hashlib.sha256(a.tobytes()).hexdigest()[:16]


# name: type of torch, unsigned type of its codes, the code of NaN
FORMATS = {
    "F16": (torch.float16, np.uint16, 0x7E00),
    "BF16": (torch.bfloat16, np.uint16, 0x7FC0),
    "F8_E5M2": (torch.float8_e5m2, np.uint8, 0x7F),
    "F8_E4M3": (torch.float8_e4m3fn, np.uint8, 0x7F),
}


def widen(codes, kind):
    bits = torch.from_numpy(codes.copy()).view(kind).float().numpy()
    return np.where(np.isnan(bits), np.uint32(0x7FC00000), bits.view(np.uint32))


def narrow(bits, kind, code, nan):
    x = bits.view(np.float32)
    out = torch.from_numpy(x.copy()).to(kind)
    codes = out.view(torch.uint8 if code == np.uint8 else torch.uint16).numpy().copy()
    codes[np.isnan(out.float().numpy())] = nan
    return codes


def all_codes(kind, code):
    return np.arange(1 << kind.itemsize * 8, dtype=code)


def main():
    mantissa = mantissas()
    rng = np.random.default_rng(4)
    out = {"widen": {}, "narrow": {}, "pairs": {}}
    for name, (kind, code, nan) in FORMATS.items():
        codes = all_codes(kind, code)
        wide = widen(codes, kind)
        some = rng.choice(len(codes), 16, replace=False)
        out["widen"][name] = {"sum": checksum(wide), "some": [[int(codes[i]), int(wide[i])] for i in sorted(some)]}

        sums, some = [], []
        for high in range(0, 512, 16):  # sign and exponent
            bits = (np.arange(high, high + 16, dtype=np.uint32)[:, None] << 23 | mantissa[None, :]).ravel()
            result = narrow(bits, kind, code, nan)
            sums.append(checksum(result))
            for i in rng.choice(len(bits), 2):
                some.append([int(bits[i]), int(result[i])])
        out["narrow"][name] = {"sums": sums, "some": some}

    # Every number of each small dtype to every other dtype.
    for a, (ka, ca, _) in FORMATS.items():
        for b, (kb, cb, nan) in FORMATS.items():
            if a != b:
                source = torch.from_numpy(all_codes(ka, ca)).view(ka)
                result = source.to(kb)
                codes = result.view(torch.uint8 if cb == np.uint8 else torch.uint16).numpy().copy()
                codes[np.isnan(result.float().numpy())] = nan
                out["pairs"][f"{a} {b}"] = checksum(codes)

    # Wide dtypes to float32, and F64 to F16, which NumPy rounds only once.
    i = np.arange(1 << 16, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    i ^= i >> np.uint64(29)
    for name, kind in [("I32", np.int32), ("U32", np.uint32), ("I64", np.int64), ("U64", np.uint64), ("I16", np.int16), ("U16", np.uint16), ("I8", np.int8), ("U8", np.uint8)]:
        x = (i >> np.uint64(64 - 8 * np.dtype(kind).itemsize)).astype(f"u{np.dtype(kind).itemsize}").view(kind)
        out["pairs"][f"{name} F32"] = checksum(torch.from_numpy(x).float().numpy())
        out["pairs"][f"{name} F64"] = checksum(torch.from_numpy(x).double().numpy())
    # Doubles in the range of the dtypes; every fourth is halfway between two representable numbers.
    exponent = 1023 - 32 + (i >> np.uint64(58))
    bits = exponent << np.uint64(52) | i & np.uint64((1 << 52) - 1)
    bits[::4] = bits[::4] >> np.uint64(41) << np.uint64(41)
    x = bits.view(np.float64)
    with np.errstate(over="ignore"):
        out["pairs"]["F64 F32"] = checksum(torch.from_numpy(x).float().numpy())
        out["pairs"]["F64 F16"] = checksum(x.astype(np.float16))

    with open(sys.argv[1], "w") as f:
        note = f"python scripts/make_convert_goldens.py tensor/testdata/convert.json with torch {torch.__version__.split('+')[0]}, numpy {np.__version__}"
        f.write(f'{{\n "command": {json.dumps(note)},\n' + ",\n".join(f' {json.dumps(k)}: {{\n' + ",\n".join(f"  {json.dumps(n)}: {json.dumps(v)}" for n, v in d.items()) + "\n }" for k, d in out.items()) + "\n}\n")


main()
