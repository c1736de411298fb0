"""Digests of what is stored, so that damage is noticed whenever it is read.

A record (a JSON object, or the words about tensors) carries a SHA-256 of itself and the version of
dptune that wrote it. Records of versions before 0.2 carry neither: damage to one entry cannot make
a new record look like an old one. A digest has no key: it finds accidents, not forgeries.
"""

import hashlib
import json
from collections.abc import Mapping
from io import BufferedReader
from typing import Any

import torch
from torch import Tensor

from dptune.plain_data import read_json
from dptune.version import __version__

_VERSION, _DIGEST = "dptune", "sha256"


def with_digest(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the version that wrote it and a digest of both."""
    assert not {_VERSION, _DIGEST} & record.keys()
    versioned = {**record, _VERSION: __version__}
    return {**versioned, _DIGEST: _digest_of(versioned)}


def without_digest(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record alone; ValueError where it does not fit its digest. A record of a version that
    wrote no digests is returned as it is."""
    if not isinstance(record, dict):
        raise TypeError("it is no record")
    if not {_VERSION, _DIGEST} & record.keys():
        return dict(record)
    versioned = {name: value for name, value in record.items() if name != _DIGEST}
    if record.get(_DIGEST) != _digest_of(versioned):
        raise ValueError("it does not fit its SHA-256")
    del versioned[_VERSION]
    return versioned


def digest_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Of their names, types, shapes and numbers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        # Bytes, whatever the type: NumPy does not know all of torch's.
        digest.update(as_line(tensor.cpu()).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def as_line(tensor: Tensor) -> Tensor:
    """All of its numbers one after another, also where torch keeps odd strides of a single one."""
    plain = tensor.detach().contiguous()
    return plain.as_strided((plain.numel(),), (1,))


def digest_of_file(file: BufferedReader) -> str:
    """Of its bytes, a part at a time."""
    return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(record: Mapping[str, Any]) -> str:
    as_read = read_json(json.dumps(record), "the record")  # where names are texts, and tuples lists
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()
