"""Texts to features by a public language model: what `dptune extract --text` does, for programs
too."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dptune.data.arrays import as_class_labels
from dptune.errors import InvalidInput
from dptune.features.backbone import KINDS_OF_TEXTS, frozen
from dptune.features.extraction import (
    Extraction,
    Watch,
    fingerprint_of_pictures,
    write_features,
)
from dptune.features.from_pictures import part_of_shift, place_of
from dptune.features.in_memory import features_of
from dptune.features.language_models import open_language_model
from dptune.features.loading import Alike, Batch, digests_of
from dptune.features.network import Networks, must_not_have_changed
from dptune.own_code import PRETRAINED, pretrained_name
from dptune.pictures.pictures import Content, Pictures
from dptune.pictures.stored import Listed
from dptune.plain_data import read_json
from dptune.table_files import listed
from dptune.texts import Encoder, Texts, read
from dptune.texts.encoder import DEFAULT_LENGTH
from dptune.texts.sources import open_splits, place_and_split
from dptune.validate import one_of


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)  # no repr: it would print texts
class ListedTexts(Listed):
    """Texts with the interface of `Pictures`."""

    texts: Texts

    def name(self, number: int) -> str:
        return f"row {number + 1}"

    def content(self, number: int) -> Content:
        """All columns of a row as JSON, so that different rows have different contents."""
        return json.dumps([column[number] for column in self.texts.columns.values()]).encode()


class LanguageNetworks(Networks):
    """A language model that makes features of texts."""

    def __init__(
        self,
        model: str,
        encoder: Encoder,
        *,
        features: str = "mean",
        device: str = "cpu",
        precision: str | None = None,
    ) -> None:
        self._encoder = encoder
        one_of(KINDS_OF_TEXTS, features=features)
        backbone = frozen(f"{PRETRAINED}{model}", open_language_model(model, encoder), features)
        super().__init__([backbone], device=device, precision=precision)

    def batches(self, items: Pictures, spans: Iterable[Sequence[int]]) -> Iterator[Batch]:
        for span in spans:
            rows = [read_json(cast(bytes, items.content(number)), "a text") for number in span]
            columns = zip(*rows, strict=True)
            texts = Texts(dict(zip(self._encoder.columns, columns, strict=True)))
            ids = torch.from_numpy(self._encoder.encode(texts)).long()
            places = list(range(len(span)))
            loaded = [[Alike(torch.tensor(places), ids)]]
            yield Batch(list(span), places, loaded, digests_of(items, span), [])

    @property
    def made_by(self) -> Mapping[str, Any]:
        """The record of the tokenizer and of the network."""
        return {**self._encoder.made_by, **super().made_by}


def extract_texts(
    source: str | Path,
    model: str,
    out: str | Path,
    *,
    text: str | Sequence[str],
    label: str,
    features: str = "mean",
    length: int = DEFAULT_LENGTH,
    test: str | Path | None = None,
    public: str | Path | None = None,
    shifts: Sequence[str | Path] = (),
    device: str = "cpu",
    precision: str | None = None,
    watch: Watch | None = None,
) -> Extraction:
    """Write features of texts into the folder `out`, which `load_data` reads, as `extract` does
    for pictures.

    Args:
        source: a .csv, .jsonl or .parquet file, a folder written by save_to_disk, or "hub:NAME".
        model: the public language model: a folder, or NAME@REVISION on the hub.
        out: the folder, as private as the texts.
        text: the column of texts, or the two of a pair.
        label: the column of labels.
        features: mean (over the tokens of a text) or class-token.
        length: of every text, in tokens; longer texts are truncated, shorter ones padded.
        test: texts for the test accuracy; `source` itself for its split test.
        public: texts that are public.
        shifts: texts of other origins to report accuracies on.
        device: cpu or cuda.
        precision: the model's number format; default: float32 on a CPU, bfloat16 on a GPU.
        watch: callback that receives `Progress` updates.

    """
    networks = find_language_networks(
        model, columns=text, features=features, length=length, device=device, precision=precision
    )
    parts = gather_texts(source, text, label, test=test, public=public, shifts=shifts)
    return write_features(parts, networks, out, source=place_of(source), watch=watch)


def gather_texts(
    source: str | Path,
    columns: str | Sequence[str],
    label: str,
    *,
    test: str | Path | None = None,
    public: str | Path | None = None,
    shifts: Sequence[str | Path] = (),
) -> Mapping[str, ListedTexts]:
    """Read the texts of every part, all with the classes of the training texts."""
    trained = read(source, columns, label)
    classes = _classes(trained)
    parts = {"train": _listed(trained, classes, "the private labels")}
    private = fingerprint_of_pictures(parts["train"])
    others = {name: other for name, other in (("test", test), ("public", public)) if other}
    for shift in shifts:
        others[part_of_shift(str(shift), others)] = shift
    for name, other in others.items():
        own = place_of(other) == place_of(source)
        splits = ("train",) if name == "public" else ("test",) if own else ("test", "train")
        texts = read(other, columns, label, splits=splits)
        parts[name] = _listed(texts, classes, f"the {name} labels")
        if fingerprint_of_pictures(parts[name]) == private:  # also under another file name
            raise InvalidInput(
                f"{str(other)!r} are the private texts themselves: exact results on them would "
                "leak them. Give other texts, or leave them out."
            )
    return parts


def has_test_texts(source: str | Path) -> bool:
    """Whether the source has a split test."""
    return not place_and_split(source)[1] and "test" in open_splits(source, ()).tables


def find_language_networks(
    model: str,
    *,
    columns: str | Sequence[str],
    features: str = "mean",
    length: int = DEFAULT_LENGTH,
    device: str = "cpu",
    precision: str | None = None,
) -> LanguageNetworks:
    """Open the language model, ready to run; the path of a folder becomes absolute."""
    place = str(Path(model).absolute()) if Path(model).is_dir() else model
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    encoder = Encoder(tokenizer=place, columns=names, length=length)
    return LanguageNetworks(place, encoder, features=features, device=device, precision=precision)


def language_networks_again(
    made_by: Mapping[str, Any], *, device: str = "cpu", precision: str | None = None
) -> LanguageNetworks:
    """Open the networks that made the features of a trained model; they must be unchanged."""
    (backbone,) = made_by["backbones"]
    networks = LanguageNetworks(
        pretrained_name(backbone["name"]),
        Encoder.of(made_by),
        features=backbone["kind"],
        device=device,
        precision=precision,
    )
    must_not_have_changed(networks.backbones, made_by)
    return networks


def features_of_texts(
    texts: Texts, made_by: Mapping[str, Any], *, device: str = "cpu", watch: Watch | None = None
) -> NDArray[np.float32]:
    """Return a row for every text, by the networks that made a trained model's features."""
    networks = language_networks_again(made_by, device=device)
    return features_of(unlabelled_texts(texts), networks, watch=watch).rows


def unlabelled_texts(texts: Texts) -> ListedTexts:
    """Texts without classes, to predict."""
    return ListedTexts(classes=(), labels=np.zeros(texts.count, np.int64), texts=texts)


def _classes(texts: Texts) -> tuple[str, ...]:
    if texts.classes:
        return texts.classes
    distinct = np.unique(as_class_labels(texts.labels, "the private labels"))
    return tuple(str(label) for label in distinct.tolist())


def _listed(texts: Texts, classes: tuple[str, ...], what: str) -> ListedTexts:
    given = as_class_labels(texts.labels, what)
    names = [texts.classes[label] if texts.classes else str(label) for label in given.tolist()]
    numbers = {name: number for number, name in enumerate(classes)}
    if not numbers.keys() >= set(names):
        raise InvalidInput(
            f"{what} hold classes that the private labels do not have ({listed(classes)}); leave "
            "those rows out."
        )
    labels = np.array([numbers[name] for name in names], np.int64)
    return ListedTexts(classes=classes, labels=labels, texts=texts)
