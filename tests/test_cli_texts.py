"""Texts from the command line, end to end with tiny models: what is written, refused and shown."""

import csv
import json
import random
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dptune
from dptune.report.plots import draw
from dptune.report.record import Record
from dptune.study.trained_model import TrainedModel
from support.commands import cut_off
from support.tiny_models import write_tiny_model

pytest.importorskip("transformers")

Run = Callable[..., tuple[int, str, str]]
SPORT = ["goal", "match", "team", "player", "game"]
MONEY = ["bank", "stock", "price", "market", "car"]
QUICK = """
[space]
steps = [2, 2]
learning_rate = [0.1, 1.0]
[search]
method = "random-search"
trials = 2
"""
TUNE = (
    *("tune-texts", "--data", "mails.csv", "--column", "body"),
    *("--length", "10", "--config", "q.toml"),
)
TOPICS = ("--label", "topic", "--classes", "money,sport")
CLASSES = (*TUNE, *TOPICS, "--model", "bert", "--epsilon", "3")
WORDS = (*TUNE, "--task", "words", "--model", "gpt2", "--epsilon", "3")
SPANS = (
    *(
        "tune-texts",
        "--data",
        "asked.jsonl",
        "--config",
        "q.toml",
        "--length",
        "24",
        "--task",
        "spans",
    ),
    *("--column", "context", "--column", "question", "--column", "answer"),
    *("--model", "bert", "--epsilon", "3"),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind in ("bert", "gpt2"):
        write_tiny_model(folder / kind, kind)
    return folder


@pytest.fixture
def run(command: Run, models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Call the command in a folder with texts and models, and without a network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    for kind in ("bert", "gpt2"):
        Path(kind).symlink_to(models / kind)
    Path("bare").mkdir()  # a model without a tokenizer, of which transformers makes one anyhow
    for name in ("config.json", "model.safetensors"):
        Path("bare", name).symlink_to(models / "bert" / name)
    write_texts()
    return command


def write_texts() -> None:
    choices = random.Random(0)
    for name, rows in (("mails", 80), ("new", 12)):
        with open(f"{name}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["body", "topic", "sender"])
            for number in range(rows):
                topic, words = choices.choice([("sport", SPORT), ("money", MONEY)])
                body = " ".join(choices.choices([*words, "the", "of"], k=choices.randint(2, 14)))
                table.writerow([body, topic, f"{name} {number % 20}"])
    for name, rows in (("asked", 40), ("asked-too", 8)):
        with open(f"{name}.jsonl", "w") as lines:
            for _ in range(rows):
                words = choices.sample([*SPORT, *MONEY], k=6)
                asked = {"context": " ".join(words), "question": "what", "answer": words[3]}
                lines.write(json.dumps(asked) + "\n")
    Path("q.toml").write_text(QUICK)


def as_json(result: tuple[int, str, str]) -> Any:
    assert result[0] == 0, result[2]
    return json.loads(result[1])


def one_line(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def predictions(file: str) -> list[dict[str, str]]:
    with open(file, newline="") as lines:
        return list(csv.DictReader(lines))


def test_a_csv_of_texts_becomes_a_model_a_guarantee_a_card_and_a_hugging_face_folder(
    run: Run,
) -> None:
    import transformers

    code, out, err = run(*CLASSES, "--test", "new.csv", "--out", "r")
    assert code == 0, err
    assert "Trying the model on made-up rows." in err
    words = one_line(out)
    for shown in (
        "test accuracy",
        "test F1",
        "on 12 rows",
        "Differential privacy with epsilon = 3 and delta = 0.00125 for one text",
        "dptune predict r --text FILE",
        "Hugging Face r/hugging-face",
    ):
        assert shown in words, (shown, words)
    assert max(map(len, out.splitlines())) <= 80 and len(out.splitlines()) <= 25
    assert Path("r/search.png").exists() and Path("r/guarantee.txt").exists()
    opened = transformers.AutoModelForSequenceClassification.from_pretrained("r/hugging-face")
    assert sorted(opened.config.label2id) == ["money", "sport"]
    tokenizer = transformers.AutoTokenizer.from_pretrained("r/hugging-face")
    assert len(tokenizer("goal " * 50, truncation=True).input_ids) == 10
    page = Path("r/hugging-face/README.md").read_text()
    assert "differential privacy" in page and "Test F1: **" in page and "on 12 rows" in page
    assert 'read from the column "body" and cut' in page
    card = one_line(run("card", "r")[1])
    assert "texts of up to 10 tokens" in card and "tokenizer bert" in card and "Test F1" in card
    assert run("predict", "r", "--text", "new.csv", "-o", "p.csv")[0] == 0
    told = [line["prediction"] for line in predictions("p.csv")]
    assert len(told) == 12 and set(told) <= {"sport", "money"}
    model = dptune.load("r")
    bodies = [line["body"] for line in predictions("new.csv")]
    assert model.predict(bodies).tolist() == told


def test_python_does_the_same_and_what_is_exported_gives_the_same_numbers(run: Run) -> None:
    import transformers

    asked = {"text": "body", "label": "topic", "tokenizer": "bert", "length": 10}
    data = dptune.load_data("mails.csv", classes=["money", "sport"], **asked)
    result = dptune.tune(
        data,
        budget=dptune.Budget(3.0, 1e-3),
        engine=dptune.HuggingFace("bert"),
        search=dptune.search.RandomSearch(trials=2),
        space=dptune.search.Space(steps=(2, 2), learning_rate=(1.0, 2.0)),
    )
    assert result.folder is None
    result.model.save_pretrained("to-publish")
    texts = ["the goal of the match", "bank stock price"]
    words = transformers.AutoTokenizer.from_pretrained("to-publish")(
        texts, padding="max_length", max_length=10, return_tensors="pt"
    )
    opened = transformers.AutoModelForSequenceClassification.from_pretrained("to-publish")
    with torch.no_grad():
        logits = opened.eval()(**words).logits.numpy()
    np.testing.assert_allclose(result.model.decision_function(texts), logits, atol=1e-5)
    assert np.abs(logits).max() > 1e-4  # something was learned, so heads are not at zero
    assert result.model.predict(texts).tolist() == [
        opened.config.id2label[number] for number in logits.argmax(1).tolist()
    ]
    with pytest.raises(dptune.errors.InvalidInput, match="texts of 1 columns"):
        result.model.predict([("two", "texts")])


def test_adapters_of_pairs_and_what_a_plan_says(run: Run) -> None:
    pairs = (*CLASSES, "--column", "sender", "--lora", "2")
    planned = as_json(run(*pairs, "--dry-run", "--json"))
    assert planned["guarantee"]["epsilon"] <= 3.0 and not Path("r").exists()
    done = as_json(run(*pairs, "--out", "r", "--json"))
    assert done["hugging_face"] == "r/hugging-face"
    assert json.loads(Path("r/hugging-face/adapter_config.json").read_text())["r"] == 2
    assert dptune.load("r").engine.name == "lora"


def test_a_run_that_was_cut_off_is_gone_on_with_from_another_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = cut_off(run, monkeypatch, *CLASSES, "--out", "r")
    assert code == 130 and "go on with: dptune resume r" in said
    assert not Path("r/hugging-face").exists()
    monkeypatch.chdir("/")
    done = as_json(run("resume", str(tmp_path / "r"), "--json"))
    assert done["guarantee"]["epsilon"] <= 3.0
    assert (tmp_path / "r/hugging-face/model.safetensors").exists()


def test_a_model_that_cannot_be_exported_is_kept_and_a_killed_export_is_made_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: TrainedModel, folder: Path, figures: Sequence[str]) -> None:
        folder.mkdir()
        (folder / "half").touch()
        raise KeyboardInterrupt

    def refused(self: TrainedModel, folder: Path, figures: Sequence[str]) -> None:
        raise dptune.errors.InvalidInput("peft has no place for it.")

    with monkeypatch.context() as patch:
        patch.setattr(TrainedModel, "save_pretrained", killed)
        assert run(*CLASSES, "--out", "r")[0] == 130
    assert not Path("r/result.json").exists() and not Path("r/hugging-face").exists()
    with monkeypatch.context() as patch:
        patch.setattr(TrainedModel, "save_pretrained", refused)
        done = as_json(run("resume", "r", "--json"))
    assert done["hugging_face"] is None
    assert "no folder for from_pretrained was written: peft has no place for it" in done["notes"]
    assert as_json(run("resume", "r", "--json"))["hugging_face"] == "r/hugging-face"
    assert not Path("r/hugging-face/half").exists() and not Path("r/.hugging-face").exists()


def test_next_words_are_learned_and_their_perplexity_is_told(run: Run) -> None:
    done = as_json(run(*WORDS, "--test", "new.csv", "--out", "r", "--json"))
    assert done["test_accuracy"] is None and done["test_figures"]["perplexity"] > 1
    score = tomllib.loads(Path("r/run.toml").read_text())["score"]  # as from Python
    assert (score["measure"], score["loss_bound"]) == ("loss", 10.0)
    words = one_line(run("resume", "r")[1])
    assert "test perplexity" in words and "r/hugging-face" in words
    assert "perplexity" in run("card", "r")[1]
    perplexity = f"{done['test_figures']['perplexity']:,.2f}"
    title = draw(Record.read(Path("r"))).get_suptitle()
    assert f"random-search, perplexity {perplexity} on the test rows\n" in title
    code, out, _ = run("predict", "r", "--text", "new.csv", "-o", "p.csv")
    assert code == 0 and "perplexity" in out
    losses = [float(line["loss"]) for line in predictions("p.csv")]
    assert len(losses) == 12 and min(losses) > 0


def test_all_that_a_person_wrote_is_one_unit(run: Run) -> None:
    of_persons = ("--unit", "sender", "--texts-per-unit", "2")
    for task, out in ((CLASSES, "a"), (WORDS, "b")):
        done = as_json(run(*task, *of_persons, "--test", "new.csv", "--out", out, "--json"))
        assert done["guarantee"]["unit"] == "one person" and done["data"]["rows"] == 20
        assert any("sender" in fact for fact in done["guarantee"]["public_facts"])
        assert run("predict", out, "--text", "new.csv", "-o", f"{out}.csv")[0] == 0
        assert len(predictions(f"{out}.csv")) == 12


def test_answers_are_found_in_texts(run: Run) -> None:
    done = as_json(run(*SPANS, "--test", "asked-too.jsonl", "--out", "r", "--json"))
    assert set(done["test_figures"]) == {"exact match", "F1"}
    assert run("predict", "r", "--text", "asked-too.jsonl", "-o", "p.csv")[0] == 0
    told = predictions("p.csv")
    lines = Path("asked-too.jsonl").read_text().splitlines()
    contexts = [json.loads(line)["context"] for line in lines]
    assert all(one["prediction"] in text for one, text in zip(told, contexts, strict=True))
    assert "test F1" in one_line(run("resume", "r")[1])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--images", "photos"), "--images"),
        (("--engine", "linear"), "--engine names another; leave one out"),
        (("--column", "subject"), "subject"),
        (("--label", "mood"), "mood"),
        (("--model", "nowhere"), "nowhere"),
        (("--model", "hf:nowhere"), "The model nowhere could not be loaded"),
        (("--model", "hf:"), "needs the name of a model"),
        (("--model", "empty"), "lacks config.json, model.safetensors, tokenizer.json"),
        (("--model", "bare"), "its tokenizer has no vocabulary"),
        (("--lora", "0"), "--lora"),
        (("--length", "0"), "length"),
        (("--length", "1000"), "1000"),
        (("--texts-per-unit", "3"), "give that too"),
        (("--unit", "who"), "who"),
        (("--test", "mails.csv"), "private data itself"),
        (("--data", "absent.csv"), "absent.csv"),
        (("--task", "rhymes"), "rhymes"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_paragraph_and_nothing_is_paid(
    run: Run, more: tuple[str, ...], said: str
) -> None:
    Path("empty").mkdir()
    code, shown, errors = run(*CLASSES, *more, "--out", "r")
    assert code == 2 and said in one_line(errors) and not shown
    assert "Traceback" not in errors and not Path("r").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--column", "body"), "name the private texts with --data"),
        (("--model", "bert", "--lora", "2"), "name the private texts with --data"),
        (("--data", "mails.csv", "--model", "bert"), "which column of --data holds the texts"),
        (("--data", "mails.csv", "--column", "body"), "texts need a pretrained language model"),
    ],
)
def test_half_of_what_texts_need_is_not_enough(run: Run, asked: tuple[str, ...], said: str) -> None:
    code, _, errors = run("tune-texts", *asked)
    assert code == 2 and said in errors and not Path("runs").exists()


def test_the_old_spelling_of_texts_works_and_says_the_new_one(run: Run) -> None:
    asked = ("--column", "body", "--length", "10", *TOPICS, "--model", "bert", "--dry-run")
    code, new, said = run("tune-texts", "--data", "mails.csv", *asked)
    assert code == 0 and "spelled" not in said
    for old in (("--text", "mails.csv"), ("--text=mails.csv",)):
        code, out, said = run("tune", *old, *asked)
        assert (code, out) == (0, new)
        assert said.startswith("dptune tune --text is now spelled dptune tune-texts --data.\n")
    code, _, said = run("tune", "--text", "mails.csv", "--data", "mails.csv", *asked)
    assert code == 2 and "--text and --data do not go together" in said


def test_a_model_may_be_named_as_errors_name_it(run: Run) -> None:
    plain, named = (
        as_json(run(*CLASSES, "--model", model, "--dry-run", "--json"))
        for model in ("bert", "hf:bert")
    )
    assert named["guarantee"]["public_facts"] == plain["guarantee"]["public_facts"]


def test_texts_are_predicted_by_models_of_texts_only(run: Run) -> None:
    assert run(*CLASSES, "--out", "r")[0] == 0
    Path("latin.csv").write_bytes("body\nthe goal für\n".encode("latin-1"))
    code, _, said = run("predict", "r", "--text", "latin.csv", "-o", "p.csv")
    assert code == 2 and "save the file as UTF-8" in one_line(said)
    Path("named.csv").write_text("title\na text\n")
    code, _, said = run("predict", "r", "--text", "named.csv", "-o", "p.csv")
    assert code == 2 and "rename yours" in one_line(said) and "--column" not in said
    code, _, said = run("predict", "r", "--data", "new.csv", "-o", "p.csv")
    assert code == 2 and "--text" in said
    code, _, said = run("predict", "r", "--text", "new.csv", "--data", "new.csv", "-o", "p.csv")
    assert code == 2 and "one of" in said
    code, _, said = run("predict", "r", "--text", "asked.jsonl", "-o", "p.csv")
    assert code == 2 and "body" in said
    code, _, said = run("predict", "r", "--text", "new.csv", "-o", "new.csv")
    assert code == 2 and "the data file itself" in said


def test_a_file_says_the_same_as_options(run: Run) -> None:
    Path("all.toml").write_text(
        f'{QUICK}[data]\nsource = "mails.csv"\ntext = ["body"]\nlabel = "topic"\nlength = 10\n'
        'classes = ["money", "sport"]\n'
        f'[engine]\nname = "zeroth-order"\nfactory = "hf:{Path("bert").absolute()}"\n'
    )
    done = as_json(run("tune", "--config", "all.toml", "--out", "r", "--json"))
    assert done["guarantee"]["epsilon"] <= 1.0
    assert dptune.load("r").engine.name == "zeroth-order"
    again = ("tune", "--config", "all.toml", "--model", "bert", "--lora", "2", "--dry-run")
    assert run(*again)[0] == 0
