"""Writes safetensors/torchfile/testdata: files of torch.save and their contents.

    pip install torch==2.15.0 safetensors==0.8.0 numpy==2.4.6
    python scripts/make_torch_goldens.py safetensors/torchfile/testdata
    python scripts/make_torch_goldens.py --model testdata/extra/linear/model.safetensors internal/model/testdata/torch

read/NAME.pt is a file that must be read, read/NAME.safetensors the tensors in it under the names
that package torchfile gives them; refused/NAME is one that must be refused. For each file,
goldens.json has the values other than tensors, or the error, and whether torch.load with
weights_only=True accepts it. If so, its tensors are compared here with the saved ones.

With --model, the weights of a model become shards as transformers wrote them: one of either format,
with a weight that is stored transposed.

Legacy files have addresses of memory in them, so that they differ from run to run.
"""

import argparse
import collections
import gzip
import io
import json
import pathlib
import pickle
import struct
import tarfile
import zipfile
from contextlib import contextmanager

import numpy as np
import torch
from safetensors.torch import load_file, save_file

MAGIC = 0x1950A86A20F9469CFC6C


def ramp(*shape, dtype=torch.float32, start=1):
    n = int(np.prod(shape))
    return torch.arange(start, start + n).reshape(shape).to(dtype)


def save(obj, **how):
    out = io.BytesIO()
    torch.save(obj, out, **how)
    return out.getvalue()


def legacy(obj, **how):
    return save(obj, _use_new_zipfile_serialization=False, **how)


@contextmanager
def setting(getter, setter, value):
    before = getter()
    setter(value)
    try:
        yield
    finally:
        setter(before)


def rezip(raw, edit=lambda name, data: (name, data), method=zipfile.ZIP_STORED, zip64=False, comment=b"", folders=False):
    """Packs the records of a file again, without alignment."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as src, zipfile.ZipFile(out, "w", method) as dst:
        if folders:
            root = src.namelist()[0].split("/")[0]
            dst.writestr(zipfile.ZipInfo(root + "/"), b"")
            dst.writestr(zipfile.ZipInfo(root + "/data/"), b"")
        for info in src.infolist():
            edited = edit(info.filename, src.read(info))
            if edited is None:
                continue
            name = zipfile.ZipInfo(edited[0])
            name.compress_type = method
            with dst.open(name, "w", force_zip64=zip64) as f:
                f.write(edited[1])
        dst.comment = comment
    return out.getvalue()


def big_endian(raw, units):
    """The file as a big-endian machine would have written it. units: bytes of a number in data/0, data/1, …"""

    def edit(name, data):
        folder, _, key = name.rpartition("/")
        if name.endswith("/byteorder"):
            return name, b"big"
        if folder.endswith("/data"):
            return name, np.frombuffer(data, f"V{units[int(key)]}").view("u1").reshape(-1, units[int(key)])[:, ::-1].tobytes()
        return name, data

    return rezip(raw, edit)


class Pickle:
    """Pickles that no version of Python at hand writes, opcode by opcode."""

    def __init__(self, protocol=2):
        self.code = b"\x80" + bytes([protocol])

    def __call__(self, *parts):
        for p in parts:
            if isinstance(p, bytes):
                self.code += p
            elif isinstance(p, str):
                self.code += b"X" + struct.pack("<I", len(p.encode())) + p.encode()
            elif isinstance(p, int):
                self.code += b"J" + struct.pack("<i", p)
            elif isinstance(p, tuple):
                self(b"(", *p, b"t")
            elif isinstance(p, type(None)):
                self.code += b"N"
        return self

    def glob(self, module, name):
        return self(f"c{module}\n{name}\n".encode())

    def storage(self, cls, key, numel, *view):
        return self(b"(", "storage").glob("torch", cls)(key, "cpu", numel, *view, b"tQ")

    def dict(self, *pairs):
        return self(b"}(", *pairs, b"u")

    def end(self):
        return self.code + b"."


def handmade_zip(code, storages, root="archive"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(zipfile.ZipInfo(f"{root}/data.pkl"), code)
        z.writestr(zipfile.ZipInfo(f"{root}/version"), "3\n")
        for key, data in storages.items():
            z.writestr(zipfile.ZipInfo(f"{root}/data/{key}"), data)
    return out.getvalue()


def handmade_legacy(code, storages, protocol=2):
    """storages: {key: (number of elements, bytes)}, in the order of the file"""
    out = pickle.dumps(MAGIC, protocol) + pickle.dumps(1001, protocol)
    out += pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}, protocol)
    out += code + pickle.dumps(list(storages), protocol)
    for numel, data in storages.values():
        out += struct.pack("<q", numel) + data
    return out


def flatten(value, prefix=()):
    """(name, leaf) for every tensor and every other value"""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, (list, tuple, set)):
        items = list(enumerate(value))
    else:
        yield ".".join(prefix) if prefix else "tensor", value
        return
    for key, item in items:
        if isinstance(key, (str, int)):
            yield from flatten(item, (*prefix, str(key)))
        else:
            assert not any(torch.is_tensor(leaf) for _, leaf in flatten(item)), key


def is_tensor(leaf):
    return torch.is_tensor(leaf) or isinstance(leaf, torch.UntypedStorage | torch.TypedStorage)


def plain(leaf):
    """The tensor as safetensors has it: on its own, in order."""
    if isinstance(leaf, torch.UntypedStorage):
        return torch.tensor(list(leaf), dtype=torch.uint8)
    if isinstance(leaf, torch.TypedStorage):
        return torch.tensor(list(leaf), dtype=leaf.dtype)
    with torch.no_grad():
        leaf = leaf.detach().resolve_conj().resolve_neg()
        if leaf.dtype == torch.float4_e2m1fn_x2:
            return leaf.view(torch.uint8).contiguous().clone().view(leaf.dtype)
        return torch.empty_like(leaf, memory_format=torch.contiguous_format).copy_(leaf)


def text(value):
    """A value that is no tensor, as [type, text]."""
    match value:
        case bool():
            return ["bool", str(value)]
        case int():
            return ["int", str(value)]
        case float():
            return ["float", struct.pack(">d", value).hex()]
        case complex():
            return ["complex", struct.pack(">dd", value.real, value.imag).hex()]
        case str():
            return ["str", value]
        case bytes() | bytearray():
            return ["bytes", bytes(value).hex()]
        case None:
            return ["none", ""]
        case torch.dtype() | torch.device():
            return ["str", str(value)]
    raise TypeError(type(value))


def state_dict():
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Embedding(4, 3, dtype=torch.bfloat16))
    return model, model.state_dict()


def trained(optimizer, **how):
    torch.manual_seed(5)
    model = torch.nn.Linear(3, 2)
    opt = optimizer(model.parameters(), **how)
    for _ in range(2):
        opt.zero_grad()
        model(ramp(4, 3)).square().sum().backward()
        opt.step()
    return model, opt


DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "bool": torch.bool, "c64": torch.complex64,
}  # fmt: skip
NEW = {"u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64}
EIGHT_BITS = {
    "f8_e4m3": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2, "f8_e4m3fnuz": torch.float8_e4m3fnuz,
    "f8_e5m2fnuz": torch.float8_e5m2fnuz, "f8_e8m0": torch.float8_e8m0fnu, "f4": torch.float4_e2m1fn_x2,
}  # fmt: skip


def old_dtypes():
    values = {k: ramp(2, 3, dtype=d) for k, d in DTYPES.items()}
    values["bool"] = torch.tensor([[True, False, True], [False, False, True]])
    values["c64"] = torch.complex(ramp(2, 3), -ramp(2, 3))
    values["odd"] = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-45])
    return values


def new_dtypes():
    values = {k: ramp(2, 3, dtype=d) for k, d in NEW.items()}
    values["u64"] = torch.tensor([[0, 1, 2**63], [2**64 - 1, 2**32, 7]], dtype=torch.uint64)
    return values | {k: ramp(2, 4, dtype=torch.uint8, start=0x31).view(d) for k, d in EIGHT_BITS.items()}


def views():
    base, cube = ramp(6, 8), ramp(2, 3, 4)
    return {
        "transposed": base.t(), "rows": base[2:4], "columns": base[:, 3:5], "steps": base[::2, 1::3], "element": base[1, 2],
        "expanded": ramp(3).expand(4, 3), "expanded_rows": ramp(3, 1).expand(3, 5), "one_expanded": torch.tensor(7.0).expand(2, 3, 2),
        "diagonal": base.diagonal(), "windows": ramp(10).unfold(0, 4, 2), "permuted": cube.permute(2, 0, 1), "swapped_ends": cube.permute(2, 1, 0),
        "joined": cube.reshape(6, 4)[1:5], "one": base[3:4].t(), "empty_rows": base[6:], "empty_columns": base[:, 8:], "empty": torch.empty(0, 3),
        "scalar": torch.tensor(5.0), "channels_last": ramp(2, 3, 2, 2).to(memory_format=torch.channels_last), "unsqueezed": base[None, :, None, ::4],
    }  # fmt: skip


def wide_views():
    return {k: ramp(3, 5, dtype=d).t() for k, d in (DTYPES | NEW).items() if k != "bool"} | {"f8": ramp(3, 4, dtype=torch.uint8).view(torch.float8_e5m2).t()}


def nested():
    return {
        "a": {"b": [ramp(2), {"c": ramp(3)}], "t": (ramp(1), (ramp(2), 5))}, "with.dot": ramp(2), "": ramp(1), "naïve ☃": ramp(1), 7: ramp(2), -1: ramp(1), True: ramp(1),
        "only": {"numbers": [1, 2]}, "nothing": {}, "none": None,
    }  # fmt: skip


def values():
    return {
        "int": 5, "negative": -5, "wide": 2**40, "narrow": -(2**63), "huge": 2**100, "minus_huge": -(2**100), "float": 0.1, "inf": float("inf"), "true": True, "false": False,
        "none": None, "text": "naïve ☃", "empty": "", "bytes": b"\x00\xff", "bytearray": bytearray(b"ab"), "complex": 1 - 2j, "dtype": torch.bfloat16, "device": torch.device("cuda", 1),
        "cpu": torch.device("cpu"), "size": torch.Size([2, 3]), "no_size": torch.Size([]), "counter": collections.Counter("aab"), "set": {3}, "list": [1, [2.5, "x"]],
        (1, 2): "left out", 0.5: "left out", b"x": "left out", None: "left out", "layout_of": ramp(1).dtype,
    }  # fmt: skip


class Legacy2:
    """Files as written by Python 2 and PyTorch 0.3: byte strings for text, pairs for OrderedDict,
    _rebuild_tensor."""

    data = struct.pack("<6f", *range(1, 7))

    @staticmethod
    def text(s):
        return b"U" + bytes([len(s)]) + s.encode()

    @classmethod
    def file(cls):
        p = Pickle().glob("collections", "OrderedDict")(b"(](](" + cls.text("weight")).glob("torch._utils", "_rebuild_tensor")
        p(b"((" + cls.text("storage")).glob("torch", "FloatStorage")(cls.text("4711") + cls.text("cpu"), 6, None, b"tQ", 0, (2, 3), (3, 1), b"tRe](" + cls.text("steps"), 9, b"eetR")
        keys = b"\x80\x02](" + cls.text("4711") + b"e."
        whole = handmade_legacy(p.end(), {"4711": (6, cls.data)})
        return whole.replace(pickle.dumps(["4711"], 2), keys)


def handmade():
    """name → (file, the object in it)"""
    six, data = ramp(2, 3), struct.pack("<6f", *range(1, 7))
    yield "python2", Legacy2.file(), {"weight": six, "steps": 9}

    p = Pickle()(b"}(", "a").glob("torch._utils", "_rebuild_tensor_v2")(b"(").storage("FloatStorage", "root", 6, ("view", 2, 3))
    p(1, (2,), (1,), b"\x89").glob("collections", "OrderedDict")(b")RtRu")
    yield "storage_view", handmade_legacy(p.end(), {"root": (6, data)}), {"a": torch.tensor([4.0, 5.0])}

    p = Pickle()(b"}(", "a").glob("torch", "FloatTensor")(b")\x81(").storage("FloatStorage", "0", 6)(0, (2, 3), (3, 1), b"tb")
    p("b").glob("torch.nn.parameter", "Parameter")(b"(").glob("torch._utils", "_rebuild_tensor")(b"(").storage("FloatStorage", "0", 6)(3, (3,), (1,), b"tRt\x81(\x88\x89")
    p.glob("collections", "OrderedDict")(b")Rtbu")
    yield "set_state", handmade_zip(p.end(), {"0": data}), {"a": six, "b": six[1]}

    p = Pickle()(b"}(", "a").glob("torch._utils", "_rebuild_device_tensor_from_cpu_tensor")(b"(").glob("torch._utils", "_rebuild_tensor_v2")(b"(")
    p.storage("FloatStorage", "0", 6)(0, (2, 3), (3, 1), b"\x89").glob("collections", "OrderedDict")(b")RtR").glob("torch", "float32")("cpu", b"\x89tRu")
    yield "from_device", handmade_zip(p.end(), {"0": data}), {"a": six}

    p = Pickle()(b"}(", "a").glob("torch._utils", "_rebuild_tensor_v2")(b"(").storage("FloatStorage", "0", 6)
    p(0, (2, 3), (3, 1), b"\x89").glob("collections", "OrderedDict")(b")RtRr\xff\xff\xff\x7f", "b", b"j\xff\xff\xff\x7fu")
    yield "sparse_memo", handmade_zip(p.end(), {"0": data}), {"a": six, "b": six}


def read_cases():
    """name → (file, the object in it)"""
    old, new, model = old_dtypes(), new_dtypes(), state_dict()
    yield "dtypes", save(old), old
    yield "dtypes_new", save(new), new
    yield "views", save(views()), views()
    yield "views_wide", save(wide_views()), wide_views()

    base = ramp(4, 6)
    shared = {"a": base, "b": base[1:3], "c": base, "d": base.t(), "e": [base, base[0]]}
    yield "shared", save(shared), shared
    yield "nested", save(nested()), nested()
    yield "values", save(values()), values()
    yield "state_dict", save(model[1]), model[1]
    parameters = {"weight": torch.nn.Parameter(ramp(2, 3)), "frozen": torch.nn.Parameter(ramp(2), requires_grad=False), "buffer": torch.nn.Buffer(ramp(1))}
    yield "parameters", save(parameters), parameters
    noted = {"tensor": ramp(2), "parameter": torch.nn.Parameter(ramp(3))}
    noted["tensor"].note, noted["parameter"].note = "why", {"a": 1}
    yield "attributes", save(noted), noted
    for name, opt in {"adam": trained(torch.optim.Adam, lr=1e-3, amsgrad=True), "sgd": trained(torch.optim.SGD, lr=0.1, momentum=0.9)}.items():
        checkpoint = {"epoch": 3, "model": opt[0].state_dict(), "optimizer": opt[1].state_dict(), "loss": 0.25}
        yield name, save(checkpoint), checkpoint
    yield "bare_tensor", save(ramp(2, 2)), ramp(2, 2)
    yield "bare_view", save(ramp(4, 4).t()[1:3]), ramp(4, 4).t()[1:3]
    yield "bare_parameter", save(torch.nn.Parameter(ramp(2))), torch.nn.Parameter(ramp(2))
    yield "bare_list", save([ramp(2), ramp(3)]), [ramp(2), ramp(3)]
    yield "bare_number", save(5), 5
    yield "empty_bytes", save({"a": b"", "t": ramp(1)}), {"a": b"", "t": ramp(1)}
    yield "empty", save({}), {}
    storages = {"typed": ramp(3, dtype=torch.int16).storage(), "untyped": ramp(2, dtype=torch.uint8).untyped_storage()}
    yield "storages", save(storages), storages
    c = torch.complex(ramp(2, 3), ramp(2, 3, start=11))
    lazy = {"conj": c.conj(), "conj_t": c.conj().t(), "adjoint": c.mH[1:]}
    yield "conjugated", save(lazy), lazy
    negated = {"imag": torch.complex(ramp(4), ramp(4, start=9)).conj().imag, "half": torch._neg_view(ramp(3, dtype=torch.float16)), "all": torch._neg_view(torch.complex(ramp(2), ramp(2)))}
    yield "negated", save(negated), negated
    both = {"both": torch._neg_view(torch.complex(ramp(2), ramp(2)).conj())}
    yield "negated_conjugated", save(both), both
    prompt = {"prompt_embeds": ramp(5, 8, dtype=torch.bfloat16), "prompt_embeds_mask": torch.tensor([1, 1, 1, 0, 0])}
    yield "embeddings", save(prompt), prompt

    everything = old | new
    yield "legacy_dtypes", legacy(everything), everything
    yield "legacy_views", legacy(views()), views()
    yield "legacy_shared", legacy(shared), shared
    yield "legacy_nested", legacy(nested()), nested()
    yield "legacy_values", legacy(values()), values()
    yield "legacy_state_dict", legacy(model[1]), model[1]
    yield "legacy_bare", legacy(ramp(3)), ramp(3)
    yield "legacy_empty", legacy({}), {}
    yield "legacy_storages", legacy(storages), storages
    yield "legacy_two", legacy({"a": ramp(2)}) + legacy({"b": ramp(3)}), {"a": ramp(2)}

    mixed = {"a": ramp(2, 3, dtype=torch.bfloat16), "b": [ramp(3), ramp(4, 3).t()], "f8": new["f8_e4m3"], "n": {"set": {1}, "b": b"xy", "big": 2**70}}
    for protocol in (3, 4, 5):
        yield f"protocol{protocol}", save(mixed, pickle_protocol=protocol), mixed
        yield f"legacy_protocol{protocol}", legacy(mixed, pickle_protocol=protocol), mixed
    long = {"x" * 300: ramp(1), "text": "y" * 70000, "list": list(range(1001)), "bytes": b"z" * 300}
    yield "protocol4_long", save(long, pickle_protocol=4), long
    yield "long", save(long), long

    raw = save(mixed)
    yield "zip_root", rezip(raw, lambda n, d: ("another name, of/".replace("/", "") + n[n.index("/") :], d)), mixed
    yield "zip_deflated", rezip(save(views() | old), method=zipfile.ZIP_DEFLATED), views() | old
    yield "zip_64", rezip(raw, zip64=True), mixed
    yield "zip_comment", rezip(raw, comment=b"PK\x05\x06 a comment"), mixed
    yield "zip_folders", rezip(raw, folders=True), mixed
    yield "zip_old", rezip(raw, lambda n, d: None if "/." in n or n.endswith("byteorder") else (n, d)), mixed
    with setting(torch.serialization.get_crc32_options, torch.serialization.set_crc32_options, False):
        yield "zip_no_checksums", save(mixed), mixed
    units = [d.itemsize if not d.is_complex else d.itemsize // 2 for d in DTYPES.values()]
    yield "big_endian", big_endian(save(old), units + [4]), old
    yield "big_endian_views", big_endian(save({"t": ramp(3, 5).t(), "c": c.t()}), [4, 4]), {"t": ramp(3, 5).t(), "c": c.t()}
    yield "big_endian_new", big_endian(save({k: new[k] for k in NEW}), [2, 4, 8]), {k: new[k] for k in NEW}
    swapped = {k: ramp(3, 5, dtype=DTYPES[k]).t() for k in ("f16", "f64", "i32")}
    yield "big_endian_deflated", rezip(big_endian(save(swapped), [2, 8, 4]), method=zipfile.ZIP_DEFLATED), swapped
    yield from handmade()


def old_tar():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("storages", "tensors", "pickle"):
            data = pickle.dumps(0, 2)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Call:
    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def refused_cases():
    """name → (file, error, its text has this)"""
    import os

    four = ramp(2, 2)
    yield "complex128.pt", save({"a": {"z": four.to(torch.complex128)}}), "ErrDType", "complex128"
    yield "complex32.pt", save({"z": four.to(torch.complex32)}), "ErrDType", "complex32"
    yield "legacy_complex128.pt", legacy({"z": four.to(torch.complex128)}), "ErrDType", "complex128"
    yield "f4_scalar.pt", save({"z": torch.tensor(1, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}), "ErrDType", "float4"
    yield "quantized.pt", save({"q": torch.quantize_per_tensor(four, 0.1, 0, torch.qint8)}), "ErrUnsupported", "quantized"
    yield "sparse.pt", save({"s": four.to_sparse()}), "ErrUnsupported", "sparse"
    yield "csr.pt", save({"s": four.to_sparse_csr()}), "ErrUnsupported", "sparse"
    yield "meta.pt", save({"m": four.to("meta")}), "ErrUnsupported", "meta"
    yield "nested_tensor.pt", save({"n": torch.nested.nested_tensor([ramp(2), ramp(3)])}), "ErrUnsupported", "nested"
    yield "module.pt", save(torch.nn.Linear(2, 2)), "ErrGlobal", "torch.nn.modules.linear.Linear"
    yield "numpy.pt", save({"n": np.arange(3)}), "ErrGlobal", "_reconstruct"
    yield "namespace.pt", save({"args": argparse.Namespace(a=1), "a": four}), "ErrGlobal", "argparse.Namespace"
    yield "defaultdict.pt", save(collections.defaultdict(list)), "ErrGlobal", "collections.defaultdict"
    yield "evil_system.pt", save({"x": Call(os.system, "echo executed")}), "ErrGlobal", "system"
    yield "evil_eval.pt", save({"x": Call(eval, "print('executed')")}), "ErrGlobal", "builtins.eval"
    yield "evil_getattr.pt", save({"x": Call(getattr, "", "join")}), "ErrGlobal", "builtins.getattr"
    yield "evil_protocol4.pt", save({"x": Call(os.system, "echo executed")}, pickle_protocol=4), "ErrGlobal", "system"
    yield "evil_legacy.pt", legacy({"x": Call(os.system, "echo executed")}), "ErrGlobal", "system"
    yield "dotted_global.pt", handmade_zip(Pickle(4)("torch", "serialization.os.system", b"\x93").end(), {}), "ErrGlobal", "os.system"
    yield "collision.pt", save({"a": {"b": four}, "a.b": four}), "ErrName", "it twice"
    yield "collision_int.pt", save({1: four, "1": four}), "ErrName", "1"
    yield "tuple_key.pt", save({(1, 2): four}), "ErrName", "a tuple as a key"
    yield "float_key.pt", save({0.5: [four]}), "ErrName", "a float as a key"
    itself = [four]
    itself.append(itself)
    yield "cycle.pt", save(itself), "ErrPickle", "contains itself"
    script = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), script)
    yield "torchscript.pt", script.getvalue(), "ErrUnsupported", "TorchScript"
    yield "tar.pt", old_tar(), "ErrUnsupported", "tar archive"
    for protocol in range(6):
        yield f"plain{protocol}.pt", pickle.dumps({"a": [1, 2]}, protocol), "ErrNotTorch", ""
    raw = save({"a": four})
    yield "newer_version.pt", rezip(raw, lambda n, d: (n, b"11\n") if n.endswith("/version") else (n, d)), "ErrUnsupported", "version"
    yield "byteorder.pt", rezip(raw, lambda n, d: (n, b"middle") if n.endswith("/byteorder") else (n, d)), "ErrUnsupported", "middle"
    yield "bzip2.pt", rezip(raw, method=zipfile.ZIP_BZIP2), "ErrUnsupported", "method 12"
    yield "no_data.pt", rezip(raw, lambda n, d: None if n.endswith("/data/0") else (n, d)), "ErrRecord", "data/0"
    yield "short_data.pt", rezip(raw, lambda n, d: (n, d[:-1]) if n.endswith("/data/0") else (n, d)), "ErrStorage", "15 bytes"
    yield "no_folder.pt", rezip(raw, lambda n, d: (n[n.index("/") + 1 :], d)), "ErrNotTorch", "without a folder"
    yield "gzip.pt", gzip.compress(raw, mtime=0), "ErrNotTorch", "gzip"
    yield "lfs.bin", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "ErrNotTorch", "git lfs pull"
    yield "page.bin", b"<!DOCTYPE html><html></html>", "ErrNotTorch", "web page"
    yield "nothing.pt", b"", "ErrNotTorch", "0 bytes"


def takes(raw, saved=None, **how):
    """Reports whether torch.load accepts the file; if so, its result is compared with the saved
    values."""
    try:
        loaded = torch.load(io.BytesIO(raw), **how)
    except Exception:
        return False
    if saved is not None:
        got = {n: plain(v) for n, v in flatten(loaded) if is_tensor(v)}
        assert got.keys() == saved.keys(), (got.keys(), saved.keys())
        for name, t in saved.items():
            same = got[name].dtype == t.dtype and got[name].shape == t.shape and bytes(got[name].untyped_storage()) == bytes(t.untyped_storage())
            if not same:
                print("torch.load differs:", name, got[name].dtype)
    return True


def shards(model, folder):
    weights = load_file(model)
    names = list(weights)
    square = next(n for n in names if weights[n].dim() == 2)
    weights[square] = weights[square].t().contiguous().t()
    folder.mkdir(parents=True, exist_ok=True)
    index = {}
    for i, (part, write) in enumerate([(names[::2], save), (names[1::2], legacy)], 1):
        file = f"pytorch_model-{i:05}-of-00002.bin"
        (folder / file).write_bytes(write({n: weights[n] for n in part}))
        index |= dict.fromkeys(part, file)
    total = sum(w.nbytes for w in weights.values())
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=2, sort_keys=True) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    folder = args.folder
    if args.model:
        return shards(args.model, folder)
    goldens = {"read": {}, "refused": {}}
    for kind in goldens:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for old in (folder / kind).iterdir():
            old.unlink()
    for name, raw, obj in read_cases():
        (folder / "read" / f"{name}.pt").write_bytes(raw)
        tensors = {n: plain(v) for n, v in flatten(obj) if is_tensor(v)}
        save_file(tensors, folder / "read" / f"{name}.safetensors", {"format": "pt"})
        safely = takes(raw, tensors, weights_only=True)
        if not safely:
            print(name, "is refused by torch.load with weights_only=True;", "taken" if takes(raw, tensors, weights_only=False) else "refused", "without")
        goldens["read"][name] = {"torch": safely, "order": list(tensors), "values": {n: text(v) for n, v in flatten(obj) if not is_tensor(v)}}
    for name, raw, error, says in refused_cases():
        (folder / "refused" / name).write_bytes(raw)
        goldens["refused"][name] = {"torch": takes(raw, weights_only=True), "error": error, "says": says}
    (folder / "goldens.json").write_text(json.dumps(goldens, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
