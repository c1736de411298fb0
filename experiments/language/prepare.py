"""A small folder with all that the measurements of language read: texts as numbers of words, and a
pretrained network in half precision. So they run where nothing can be downloaded.

The folder holds a file SET.npz for every set (`experiments.language.sets`), and folders of models
as transformers reads them.
"""

import gzip
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dptune.bench.harness import Report
from dptune.errors import InvalidInput

Record = Mapping[str, Any]
MODEL = "minilm"
_SHUFFLED = 20260101  # seed of the splits that are ours
_BESIDE_WEIGHTS = (
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "README.md",
)


@dataclass(frozen=True)
class Source:
    """A file of texts. `length` is a public choice: longer texts are cut. `test` is how many rows
    are put aside where the file has no split of its own."""

    file: str
    text: Callable[[Record], str | tuple[str, str]]
    length: int
    test: int = 0


SOURCES = {
    "sst2": Source("sst2.jsonl.gz", lambda row: row["text"], 64),
    "subj": Source("subj.jsonl.gz", lambda row: row["text"], 64, test=1000),
    "trec": Source("trec.jsonl.gz", lambda row: row["text"], 32),
    "newsgroups20": Source("newsgroups20.jsonl.gz", lambda row: row["text"], 128),
    "ag_news": Source(
        "ag_news_test.jsonl.gz", lambda row: f"{row['title']}. {row['text']}", 96, test=1000
    ),
    "qnli": Source(
        "qnli_dev.jsonl.gz", lambda row: (row["question"], row["sentence"]), 96, test=1000
    ),
}


def prepare(texts: Path, model: Path, out: Path, names: Iterable[str], report: Report) -> None:
    """Everything, from a folder of texts and from a network as its package has it."""
    out.mkdir(parents=True, exist_ok=True)
    halve(model, out / MODEL)
    report(f"{out / MODEL}: weights in half precision")
    tokenizer = _tokenizer(model)
    for name in names:
        if name not in SOURCES:
            raise InvalidInput(f"sets are {', '.join(SOURCES)}; got {name!r}.")
        source = SOURCES[name]
        parts = split(records(texts / source.file), source.test)
        np.savez_compressed(out / f"{name}.npz", **_arrays(parts, source, tokenizer))
        counts = ", ".join(f"{part} {len(rows):,}" for part, rows in parts.items())
        report(f"{name}: {counts}")


def halve(model: Path, out: Path) -> None:
    """A folder of a model with float16 weights, and what else is needed to use it."""
    from safetensors.torch import load_file, save_file

    for name in _BESIDE_WEIGHTS:
        if (model / name).exists():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(model / name, out / name)
    weights = load_file(str(model / "model.safetensors"))
    kept = {
        name: tensor.half() if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
        if not name.startswith("pooler.")  # which mean pooling does not use
    }
    save_file(kept, str(out / "model.safetensors"), metadata={"format": "pt"})


def records(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        raise InvalidInput(f"{file} is not there; give the folder of texts with --root.")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def split(rows: Sequence[Record], test: int) -> dict[str, list[Record]]:
    """By what the rows say themselves, else by a shuffle of ours."""
    if not test:
        found: dict[str, list[Record]] = {}
        for row in rows:
            found.setdefault(row["split"], []).append(row)
        return found
    order = np.random.default_rng(_SHUFFLED).permutation(len(rows)).tolist()
    shuffled = [rows[number] for number in order]
    return {"train": shuffled[test:], "test": shuffled[:test]}


def ragged(sequences: Sequence[Sequence[int]], part: str) -> dict[str, Any]:
    """Sequences of words end to end, and how long each is."""
    flat = np.fromiter((word for words in sequences for word in words), dtype=np.int32)
    if flat.size and flat.max() >= 2**15:
        raise InvalidInput(f"words are numbered up to {flat.max()}; 32,767 is the most.")
    lengths = np.array([len(words) for words in sequences], dtype=np.uint16)
    return {f"{part}_words": flat.astype(np.int16), f"{part}_lengths": lengths}


def _arrays(
    parts: Mapping[str, Sequence[Record]], source: Source, tokenizer: Any
) -> dict[str, Any]:
    tokenizer.enable_truncation(source.length)
    arrays: dict[str, Any] = {}
    for part, rows in parts.items():
        encoded = tokenizer.encode_batch([source.text(row) for row in rows])
        arrays |= ragged([each.ids for each in encoded], part)
        arrays[f"{part}_labels"] = np.array([row["label"] for row in rows], dtype=np.int16)
    return arrays


def _tokenizer(model: Path) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    return tokenizer
