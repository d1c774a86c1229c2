"""Writes kernel sets byte by byte, from the description of the format in `runtime/set/src/container.rs`."""

import hashlib
import json
import struct
import zlib

MAGIC = b"TSET\r\n\0\n"
PREFIX = 56


def view(name, dtype, access, extents, **more):
    """A tensor parameter; its extents are lists of terms."""
    kind = {"view": {"dtype": dtype, "access": access, "extents": extents}}
    return {"name": name, "kind": kind, **more}


def number(name, dtype, default=None, **more):
    kind = {"scalar": {"dtype": dtype, "default": default}}
    return {"name": name, "kind": kind, **more}


def dim(index):
    return [{"dim": index}]


def instance(name, dims, params, **more):
    """An instance with one body, of PTX for sm_75 that no driver would take."""
    body = {
        "target": "sm_75",
        "entry": "entry",
        "grid": [dim(0)],
        "threads": 32,
        "shared_bytes": 0,
        "abi": [],
        "ptx_version": [6, 3],
        "ptx": 0,
    }
    return {
        "name": name,
        "source": "by/hand.tess",
        "source_hash": "",
        "signature": {"dims": dims, "params": params},
        "bodies": [body],
        **more,
    }


def manifest():
    """Kernels whose signatures show every kind of argument."""
    m, n = dim(0), dim(1)
    rmsnorm = [
        view("x", "bf16", "read", [m, n]),
        view("weight", "bf16", "read", [n]),
        view("out", "bf16", "write", [m, n]),
        number("eps", "f32"),
    ]
    gated = [
        view("x", "f16", "read", [m, [{"int": 2}, {"dim": 1}, {"op": "mul"}]]),
        view("out", "f16", "write", [m, n]),
    ]
    mixed = [
        view("a", "e4m3", "read", [n, m]),
        view("scale", "ue8m0", "read", [n], optional=True),
        view("packed", "e2m1", "read", [n, m], optional=True),
        view("flags", "bool", "read_write", [m], optional=True),
        number("count", "i32", 3),
        number("causal", "bool", 0),
        number("epi.alpha", "f32", 1.0),
        number("stream", "f32", 0.5),
    ]
    return {
        "name": "by-hand",
        "compiler": "0.0.0",
        "instances": [
            instance("rmsnorm<bf16>", ["m", "n"], rmsnorm),
            instance("silu_and_mul<f16>", ["m", "d"], gated),
            instance("mixed", ["k", "n"], mixed, requires=[{"holds": [{"dim": 0}, {"int": 4}, {"op": "le"}]}]),
        ],
    }


def write(manifest, version=1, text=b".version 6.3\n"):
    """The file's bytes: the manifest and one module."""
    data = json.dumps(manifest).encode()
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    module = compressor.compress(text) + compressor.flush()
    numbers = struct.pack("<IIQ", version, 1, len(data))
    start = PREFIX + len(data) + 64
    table = struct.pack("<IIQQQ", 1, 0, start, len(module), len(text)) + hashlib.sha256(text).digest()
    header = hashlib.sha256(numbers + data + table).digest()
    return MAGIC + numbers + header + data + table + module
