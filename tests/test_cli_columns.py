"""Declared columns on the command line: a file to begin with, a study, predictions, refusals."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

Run = Callable[..., tuple[int, str, str]]
TUNE = ("tune", "--data", "ill.csv", "--label", "ill")
COLUMNS = """\
age = { kind = "number", range = [20, 60], fill = "middle" }
job = { kind = "category", values = ["nurse", "clerk"] }
ill = "boolean"
"""


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Call the command in a folder with data; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for name, rows in (("ill", 300), ("new", 20)):
        jobs = random.choice(["nurse", "clerk"], rows)
        lines = [
            f"{n % 50 + 15 if n % 9 else ''},{job},{job == 'nurse'}" for n, job in enumerate(jobs)
        ]
        Path(f"{name}.csv").write_text("\n".join(["age,job,ill", *lines]))
    Path("columns.toml").write_text(COLUMNS)
    return command


def test_csv_with_texts_and_missing_values_is_trained_and_predicted(run: Run) -> None:
    asked = ("--columns", "columns.toml", "--method", "unit-noise", "--epsilon", "8", "--out", "r")
    code, out, err = run(*TUNE, *asked, "--test", "new.csv", "--json")
    assert code == 0, err
    assert json.loads(out)["test_accuracy"] > 0.9
    Path("blank.csv").write_text("job,age\nnurse,\nclerk,33\n")
    code, _, err = run("predict", "r", "--data", "blank.csv", "-o", "p.csv")
    assert code == 0, err
    assert Path("p.csv").read_text().split() == ["prediction", "true", "false"]
    Path("blank.csv").write_text("height,job,age,ill\n1,nurse,,\ntall,clerk,33,maybe\n")
    code, _, err = run("predict", "r", "--data", "blank.csv", "-o", "q.csv")
    assert code == 0, err  # what the model does not know is left out
    assert Path("q.csv").read_text() == Path("p.csv").read_text()
    Path("blank.csv").write_text("job,height\nnurse,1\n")
    code, _, err = run("predict", "r", "--data", "blank.csv", "-o", "p.csv")
    assert code == 2 and "  age: is missing; the model needs it." in err
    assert "height" not in err and "declare" not in err


def test_missing_values_in_new_rows_are_refused_if_model_had_none(run: Run) -> None:
    Path("ill.csv").write_text(
        "age,job,ill\n" + "".join(f"{20 + n % 40},nurse,{n % 2}\n" for n in range(300))
    )
    Path("columns.toml").write_text(COLUMNS.replace(', fill = "middle"', ""))
    asked = ("--columns", "columns.toml", "--method", "unit-noise", "--epsilon", "8", "--out", "r")
    code, _, err = run(*TUNE, *asked)
    assert code == 0, err
    Path("blank.csv").write_text("job,age\nnurse,\nclerk,33\n")
    code, _, err = run("predict", "r", "--data", "blank.csv", "-o", "p.csv")
    assert code == 2
    assert (
        "age: has missing values, and the model was trained without: put a value there, or leave"
        in err
    )
    assert "fill" not in err and "declare" not in err


def test_new_rows_of_a_model_without_declared_columns_need_numbers(run: Run) -> None:
    Path("ill.csv").write_text(
        "age,size,ill\n" + "".join(f"{20 + n % 40},{n % 3},{n % 2}\n" for n in range(300))
    )
    code, _, err = run(*TUNE, "--method", "unit-noise", "--epsilon", "8", "--out", "r")
    assert code == 0, err
    Path("blank.csv").write_text("age,size\n,small\n33,2\n")
    code, _, err = run("predict", "r", "--data", "blank.csv", "-o", "p.csv")
    assert code == 2 and "trained on numbers without gaps" in err
    assert "  age: has missing values" in err and "  size: must be numbers" in err
    assert "dptune columns" not in err


def test_columns_stand_in_a_config_too_and_options_win(run: Run) -> None:
    Path("a.toml").write_text(f"[budget]\nepsilon = 2\n[columns]\n{COLUMNS}")
    code, out, err = run(*TUNE, "--config", "a.toml", "--dry-run", "--json")
    assert code == 0, err
    assert "4 features before curves), as declared" in out and "the classes (2), as declared" in out
    Path("b.toml").write_text('[columns]\njob = { kind = "category", buckets = 9 }\n')
    code, out, err = run(*TUNE, "--config", "a.toml", "--columns", "b.toml", "--dry-run", "--json")
    assert code == 0, err
    assert "11 features before curves), as declared" in out
    assert "Note: dptune export cannot write this model" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age = ", "columns.toml is not TOML"),
        ('[columns]\nage = "number"\n[budget]\nepsilon = 1\n', "and budget beside it"),
        ('age = "nmber"\njob = "drop"\nill = "boolean"', "  age: kind must be one of"),
        (COLUMNS + 'sick = "boolean"', "  sick: is declared but missing"),
    ],
)
def test_wrong_columns_file_spends_no_budget(run: Run, text: str, message: str) -> None:
    Path("columns.toml").write_text(text)
    code, out, err = run(*TUNE, "--columns", "columns.toml", "--out", "r")
    assert (code, out) == (2, "") and message in err
    assert not Path("r").exists()


def test_columns_option_is_for_tables_only(run: Run) -> None:
    code, _, err = run("tune", "--data", "demo", "--columns", "columns.toml", "--dry-run")
    assert code == 2 and "columns are declared by name, and those of 'demo' have none" in err


def test_columns_template_is_not_overwritten(run: Run) -> None:
    code, out, _ = run("columns", "ill.csv", "--label", "ill", "-o", "new.toml")
    assert code == 0
    assert "Fill it in, then: dptune tune --data ill.csv --label ill --columns new.toml" in out
    written = Path("new.toml").read_text()
    assert 'job = { kind = "category", values = "paid" }  # string' in written
    assert '# ill = "boolean"' in written
    assert run("columns", "ill.csv", "--label", "ill")[1] == written
    plain = json.loads(run("columns", "ill.csv", "--json")[1])
    assert plain["columns"]["age"] == "number" and plain["out"] is None
    code, _, err = run("columns", "ill.csv", "-o", "new.toml")
    assert code == 2 and "is there already" in err and Path("new.toml").read_text() == written


def test_names_that_types_list_are_written_on_request(run: Run) -> None:
    table = pa.table({"job": pa.array(["nurse", "cook"]).dictionary_encode(), "ill": [0, 1]})
    parquet.write_table(table, "a.parquet")
    code, out, _ = run("columns", "a.parquet", "--label", "ill", "--json")
    assert code == 0 and json.loads(out)["columns"]["job"]["values"] == "paid"
    code, out, _ = run("columns", "a.parquet", "--label", "ill", "--values", "--json")
    assert code == 0 and json.loads(out)["columns"]["job"]["values"] == ["nurse", "cook"]


@pytest.mark.parametrize("text", ["age,age,ill\n1,2,3\n", ",age,ill\n0,2,3\n"])
def test_names_that_cannot_be_told_apart_are_refused_alike(run: Run, text: str) -> None:
    Path("ill.csv").write_text(text)
    code, out, said = run("columns", "ill.csv")
    assert (code, out) == (2, "")
    assert "has no name. Name it, or leave it" in said or "several columns called" in said
    for more in ((), ("--columns", "columns.toml")):
        code, _, err = run(*TUNE, *more, "--dry-run")
        assert code == 2 and err.replace(str(Path.cwd()) + "/", "") == said


def test_text_columns_without_a_declaration_say_how_to_begin(run: Run) -> None:
    code, _, err = run(*TUNE, "--out", "r")
    assert code == 2 and "dptune columns" in err and "--columns columns.toml" in err
    assert "  job: must be numbers" in err and "  age: has missing values" in err
    assert "'ill.csv' has columns" in err  # the path as it was typed


def test_label_that_cannot_be_learned_is_refused_before_payment(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dptune.study import study

    def stopped(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "tune", stopped)
    Path("columns.toml").write_text(COLUMNS.replace("[20, 60]", "[1000, 2000]"))
    code, _, err = run(*TUNE, "--columns", "columns.toml", "--epsilon", "0.01", "--out", "r")
    assert code == 130
    words = " ".join(err.split())
    assert "Note: outside of their declared ranges in every row" in words
    assert "nothing can be learned" in words
