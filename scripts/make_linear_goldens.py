"""Writes internal/linear/testdata: tables, their least-squares solutions and files of models.

    pip install numpy==2.4.6 safetensors==0.8.0
    python scripts/make_linear_goldens.py internal/linear/testdata
    python scripts/make_linear_goldens.py --check FILE    # loads a model that lorafuse saved

"exact" is the solution of the normal equations in rational numbers, rounded once, so it is
right to the last bit; "lstsq" is numpy.linalg.lstsq's. The Longley data and its certified
solution are in NIST's collection of reference data sets.
"""

import argparse
import json
import pathlib
from fractions import Fraction

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

LONGLEY = """
60323 83.0 234289 2356 1590 107608 1947
61122 88.5 259426 2325 1456 108632 1948
60171 88.2 258054 3682 1616 109773 1949
61187 89.5 284599 3351 1650 110929 1950
63221 96.2 328975 2099 3099 112075 1951
63639 98.1 346999 1932 3594 113270 1952
64989 99.0 365385 1870 3547 115094 1953
63761 100.0 363112 3578 3350 116219 1954
66019 101.2 397469 2904 3048 117388 1955
67857 104.6 419180 2822 2857 118734 1956
68169 108.4 442769 2936 2798 120445 1957
66513 110.8 444546 4681 2637 121950 1958
68655 112.6 482704 3813 2552 123366 1959
69564 114.2 502601 3931 2514 125368 1960
69331 115.7 518173 4806 2572 127852 1961
70551 116.9 554894 4007 2827 130081 1962
"""


def exact(x, y):
    """Gaussian elimination of XᵀX·b = Xᵀy in rational numbers."""
    x = [[Fraction(v) for v in row] for row in x.tolist()]
    y = [Fraction(v) for v in y.tolist()]
    n = len(x[0])
    a = [[sum(row[i] * row[j] for row in x) for j in range(n)] + [sum(row[i] * t for row, t in zip(x, y))] for i in range(n)]
    for i in range(n):
        pivot = next(k for k in range(i, n) if a[k][i] != 0)
        a[i], a[pivot] = a[pivot], a[i]
        for k in range(n):
            if k != i:
                f = a[k][i] / a[i][i]
                a[k] = [u - f * v for u, v in zip(a[k], a[i])]
    return [float(a[i][n] / a[i][i]) for i in range(n)]


def cases():
    rng = np.random.default_rng(20)
    x = rng.normal(size=(40, 5))
    yield "noise", x, x @ [1.5, -2, 0.25, 0, 8] + 3 + rng.normal(size=40), True, 1e-13
    yield "through the origin", x, x @ [1.5, -2, 0.25, 0, 8] + 3 + rng.normal(size=40), False, 1e-13
    yield "one column", x[:, :1], 2 * x[:, 0] - 7 + rng.normal(size=40), True, 1e-13
    yield "as many rows as unknowns", x[:6], rng.normal(size=6), True, 1e-12
    scales = np.array([1e-200, 1e-5, 1, 1e9, 1e150])
    yield "columns of very different sizes", x * scales, x @ [1, 2, 3, 4, 5.0] + rng.normal(size=40), True, 1e-13
    seconds = 1.7e9 + np.sort(rng.uniform(0, 100, size=30))
    yield "seconds since 1970", seconds[:, None], 0.5 * (seconds - 1.7e9) + rng.normal(size=30), True, 1e-11
    longley = np.array([line.split() for line in LONGLEY.split("\n") if line], dtype=float)
    yield "longley", longley[:, 1:], longley[:, 0], True, 1e-8


def write(out):
    out.mkdir(parents=True, exist_ok=True)
    goldens = []
    for name, x, y, intercept, tolerance in cases():
        a = np.hstack([x, np.ones((len(x), 1))]) if intercept else x
        solution = exact(a, y)
        # numpy drops columns that are small relative to others, so scale them first
        size = np.abs(a).max(axis=0)
        lstsq = (np.linalg.lstsq(a / size, y, rcond=None)[0] / size).tolist()
        split = lambda b: {"coefficients": b[: x.shape[1]], "intercept": b[x.shape[1]] if intercept else 0.0}
        residual = y - a @ np.array(solution)
        goldens.append({
            "name": name, "fit_intercept": intercept, "x": x.tolist(), "y": y.tolist(),
            "exact": split(solution), "lstsq": split(lstsq), "tolerance": tolerance,
            "score": 1 - float(residual @ residual) / float(((y - y.mean()) ** 2).sum()),
        })
    (out / "fits.json").write_text(json.dumps(goldens, separators=(",", ":")) + "\n")
    for name, dtype, fit in [("f64", np.float64, "true"), ("f32", np.float32, "true"), ("origin", np.float64, "false")]:
        tensors = {"coefficients": np.array([0.1, -2.5, 1e-310], dtype), "intercept": np.array([0.0 if fit == "false" else 1 / 3], dtype)}
        save_file(tensors, out / f"{name}.safetensors", metadata={"fit_intercept": fit})
    save_file({"coefficients": np.array([2, 3], np.float32), "intercept": np.array([1], np.float32)}, out / "plain.safetensors")


def check(path):
    with safe_open(path, "numpy") as f:
        print("fit_intercept:", (f.metadata() or {}).get("fit_intercept"))
    for name, values in sorted(load_file(path).items()):
        print(name, values.dtype, values.shape, [v.hex() for v in values.tolist()])


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", metavar="FILE", help="print what is in a model")
    p.add_argument("out", nargs="?", type=pathlib.Path)
    args = p.parse_args()
    check(args.check) if args.check else write(args.out)
