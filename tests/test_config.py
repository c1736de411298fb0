"""What was asked survives being written down, and nothing misspelt is ignored."""

from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_plus

import numpy as np
import pytest
import sqlalchemy as sa
import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st

from dptune.accounting import Budget
from dptune.engines.linear import LinearEngine
from dptune.errors import FolderProblem, InvalidInput
from dptune.ledger.address import are_one
from dptune.ledger.store import open_store
from dptune.search.linear_scaling import LinearScaling
from dptune.search.methods import METHODS
from dptune.search.paper_line import PaperLine
from dptune.search.random_search import RandomSearch
from dptune.search.score import HeldOutScore, NoisyScore, PublicScore, UnpaidScore
from dptune.search.space import Space
from dptune.search.unit_noise import UnitNoise
from dptune.study.config import (
    SCORES,
    Config,
    Preparation,
    build,
    digest,
    parse,
    score_from,
    search_from,
)
from dptune.study.planning import read_config
from dptune.study.run_folder import RunFolder


def make_config(**asked: Any) -> Config:
    values: dict[str, Any] = {
        "study": "",
        "budget": Budget(1.0, 1e-5),
        "search": LinearScaling(),
        "score": NoisyScore(),
        "space": Space(),
        "recipe": {},
        "preparation": Preparation(),
        "source": {},
    }
    return Config(**values | asked).named()


def again(config: Config, tmp_path: Path) -> Config:
    folder = RunFolder.create(tmp_path / "run")
    folder.write("run.toml", config.to_toml())
    return read_config(folder)


ASKED: list[dict[str, Any]] = [
    {},
    {"search": UnitNoise(noise=0.3), "score": PublicScore(), "seed": 2**63},
    {"score": NoisyScore(sampling_rate=0.1)},
    {"recipe": {"directions": 2, "optimizer": "sgd", "momentum": 0.0}},
    {"search": RandomSearch(), "score": UnpaidScore(measure="loss", loss_bound=1 / 3)},
    {
        "search": PaperLine(
            epsilons=(0.01, 0.1 + 0.2), sampling_rate=(0.1, 0.2), axis="mu", ranges="full"
        ),
        "score": HeldOutScore(every=3, share=1e-3),
    },
    {"recipe": {"sampling_rate": 0.1, "optimizer": "adam", "clip_norm": 1e-3}},
    {"engine": LinearEngine(bias=True, initialization="random")},
    {"recipe": {"sampling_rate": None, "momentum": np.float32(0.5), "free_steps": np.int64(2)}},
    {"preparation": Preparation(unit_rows=False, standardize=True, center_share=0.1)},
    {"preparation": Preparation(ranges=((18, 90), (-1 / 3, 1e300)))},
    {"space": Space(learning_rate=(1e-7, 1 / 3), steps=(1, 10**6)), "precision": "bfloat16"},
    {"ledger": "postgresql://somebody@/x?host=/tmp", "reuse": "/a b/ü", "device": "cuda:1"},
    {"source": {"source": 'a "b".csv', "label": "y", "classes": ["a", "b"], "rows": 3}},
    {"balance": "classes", "check": False},
    {"facts": ("the number of rows (3), taken from the data", "x = [1, 2]")},
]


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_written_down_means_the_same_when_read(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    config = make_config(**asked)
    found = again(config, tmp_path)
    kept = {name: value for name, value in config.recipe.items() if value is not None}
    assert found == Config(**{**vars(config), "recipe": kept})
    assert found.plan(7) == config.plan(7)
    assert found.to_toml() == config.to_toml()


@given(
    epsilon=st.floats(1e-6, 1e6),
    delta=st.floats(1e-90, 1, exclude_max=True),
    rate=st.floats(1e-100, 1e100),
)
def test_numbers_are_written_to_the_last_bit(epsilon: float, delta: float, rate: float) -> None:
    config = make_config(budget=Budget(epsilon, delta), space=Space(learning_rate=(rate, rate)))
    plain = parse(config.to_toml(), "run.toml")
    assert build(Budget, plain["budget"], "budget") == config.budget
    assert build(Space, plain["space"], "space") == config.space


def test_a_study_has_a_name_of_its_own_that_seals_what_was_asked() -> None:
    first, second = make_config(), make_config()
    assert first.study != second.study
    assert first.study.split("-")[1] == second.study.split("-")[1]
    assert first.study.endswith(digest(parse(first.to_toml(), "run.toml")))
    for asked in ({"budget": Budget(1.0, 2e-5)}, {"seed": 1}, {"reuse": "/x"}, {"facts": ("f",)}):
        assert make_config(**asked).study.split("-")[1] != first.study.split("-")[1]
    assert make_config(balance="classes").study.split("-")[1] != first.study.split("-")[1]
    ranges = {"preparation": Preparation(ranges=((0, 1),))}
    assert make_config(**ranges).study.split("-")[1] != first.study.split("-")[1]
    for free in ({"ledger": "/x"}, {"device": "cuda"}, {"source": {"source": "demo"}}):
        assert make_config(**free).study.split("-")[1] == first.study.split("-")[1]


def test_a_run_of_an_older_version_counts_every_row_alike_and_pays_for_no_check(
    tmp_path: Path,
) -> None:
    plain = parse(make_config().to_toml(), "run.toml")
    del plain["run"]["balance"], plain["run"]["check"]
    plain["study"] = f"old-{digest(plain)}"
    folder = RunFolder.create(tmp_path / "run")
    folder.write("run.toml", tomli_w.dumps(plain))
    found = read_config(folder)
    assert found.balance == "none" and found.check is False
    del plain["run"]["seed"]  # what decides a study is sealed as it was
    assert digest(plain) != plain["study"].removeprefix("old-")


def test_a_run_toml_without_a_seal_is_refused(tmp_path: Path) -> None:
    text = make_config().to_toml()
    folder = RunFolder.create(tmp_path / "run")
    for study in ("", "abc", "None"):
        lines = [line for line in text.splitlines() if not line.startswith("study")]
        folder.write("run.toml", "\n".join([f'study = "{study}"', *lines]))
        with pytest.raises(FolderProblem, match="was changed after the study began"):
            read_config(folder)


MISSPELT = {
    "budjet = 1": "no setting budjet",
    "[budget]\nepsilonn = 1.0": "no setting epsilonn",
    "[recipe]\nnoise_multiplier = 0.0": "no setting noise_multiplier",
    "[recipe]\nrows = 5": "no setting rows",
    "[run]\nnoise_seed = 1": "no setting noise_seed",
    "[data]\nfile = 'x'": "no setting file",
    "budget = 3": "must be a section",
    "[budget": "is not TOML",
}


@pytest.mark.parametrize("text", MISSPELT)
def test_a_misspelt_setting_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match=MISSPELT[text]):
        parse(text, "run.toml")


def test_a_misspelt_option_of_a_method_or_score_is_named() -> None:
    with pytest.raises(InvalidInput, match="method must be one of"):
        search_from({"method": "grid"})
    with pytest.raises(InvalidInput, match="no setting trails"):
        search_from({"method": "paper-line", "trails": 4})
    with pytest.raises(InvalidInput, match="kind must be one of"):
        score_from({"kind": "exact"})
    with pytest.raises(InvalidInput, match="no setting share"):
        score_from({"kind": "public", "share": 0.1})
    with pytest.raises(InvalidInput, match="lacks"):
        build(Budget, {"epsilon": 1.0}, "[budget]")


def test_every_method_and_score_can_be_named() -> None:
    assert {search_from({"method": name}).name for name in METHODS} == set(METHODS)
    assert {score_from({"kind": kind}).kind for kind in SCORES} == set(SCORES)


def test_what_a_study_searches_or_owes_to_its_budget_is_no_recipe() -> None:
    for recipe in ({"steps": 3}, {"noise_multiplier": 0.0}, {"rows": 1}, {"momentun": 0.1}):
        with pytest.raises(InvalidInput, match="the recipe has no setting"):
            make_config(recipe=recipe)
    with pytest.raises(InvalidInput, match="momentum"):
        make_config(recipe={"momentum": 2.0})


def test_what_cannot_be_written_down_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be written down"):
        make_config(source={"source": object()})


@pytest.mark.parametrize("share", [-0.1, 0.6, float("nan"), "much", True])
def test_a_private_mean_has_at_most_half_of_the_budget(share: Any) -> None:
    with pytest.raises(InvalidInput, match="center_share must be"):
        Preparation(center_share=share)


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("postgresql://ann:secret@db:5432/x?sslmode=require", "postgresql://ann@db:5432/x?sslmode=require"),
        ("postgresql://ann@db/x", "postgresql://ann@db/x"),
        ("postgresql:///x", "postgresql:///x"),
        ("postgresql://db/x?user=ann&password=secret", "postgresql://db/x?user=ann"),
        ("postgresql://db/x?password=secret", "postgresql://db/x"),
        ("/tmp/ledger.db", "/tmp/ledger.db"),
    ],
)  # fmt: skip
def test_a_ledgers_password_is_not_written_down(address: str, written: str) -> None:
    asked = make_config(ledger=address)
    assert asked.ledger_without_password == written
    assert "secret" not in asked.to_toml()


NASTY = st.text("/@:?#&=%+ []\\'\"-;,.~!$^*()<>{}|`äß☃", max_size=6)
SECRET = "hunter2hunter2"


def told(address: str) -> list[str]:
    """Everything that is written down or said of a ledger's address, in any encoding."""
    said = []
    try:
        config = make_config(ledger=address)
        said += [config.to_toml(), repr(config)]
    except InvalidInput as error:
        said.append(str(error))
    try:
        said.append(open_store(address).shown)
    except InvalidInput as error:
        said.append(str(error))
    return [unquote_plus(text) for text in said] + said


@given(user=NASTY, before=NASTY, after=NASTY)
def test_no_spelling_of_a_password_is_written_down_or_shown(
    user: str, before: str, after: str
) -> None:
    password = f"{before}{SECRET}{after}"
    encoded = quote(password, safe="")
    name = quote(f"ann{user}", safe="")
    rest = "db:5432/x?sslmode=require&options=-csearch_path%3Dpatients"
    for address in (
        f"postgresql://{name}:{encoded}@{rest}",
        f"postgresql+psycopg://{name}:{quote(password)}@{rest}",  # a plain /
        f"postgresql://{name}@{rest}&password={encoded}",
        f"postgresql://{name}@{rest}&sslpassword={encoded}&connect_timeout=3",
        f"postgresql://{name}@{rest}&%70assword={encoded}",
        f"postgresql://{name}@{rest}%20-c%20app.PassWord%3D{quote(SECRET)}",
    ):
        assert not any(SECRET in text for text in told(address)), address
        written = make_config(ledger=address).ledger_without_password
        url, whole = sa.make_url(written), sa.make_url(address)
        assert url.password is None
        assert (url.username, url.host, url.port, url.database) == (
            (whole.username, whole.host, whole.port, whole.database)
        )
        assert url.query["options"] == "-csearch_path=patients"
        assert url.query["sslmode"] == "require"


@example(user="", before="&", after="", scheme="://")  # an option without a value
@given(user=NASTY, before=NASTY, after=NASTY, scheme=st.sampled_from(["://", ":/", "//", ":"]))
def test_a_malformed_address_is_not_repeated(
    user: str, before: str, after: str, scheme: str
) -> None:
    """Nothing is encoded, so the password may end up anywhere."""
    for address in (
        f"postgresql{scheme}ann{user}:{before}{SECRET}{after}@db/x",
        f"postgresql{scheme}ann{user}:x@{before}{SECRET}{after}@db/x",
        f"postgresql{scheme}ann{user}@db/x?PASSWORD={before}{SECRET}{after}",
        f"mysql://ann{user}:{before}{SECRET}{after}@db/x",
        f"host=db user=ann{user} password={before}{SECRET}{after}",
        f"postgresql://ann:{before}{SECRET}{after}@db/x\n",
    ):
        assert not any(SECRET in text for text in told(address)), address


def test_a_password_in_an_address_of_a_wrong_type_is_not_shown() -> None:
    for wrong in (b"postgresql://ann:secret@db/x", ["postgresql://ann:secret@db/x"]):
        for use in (open_store, lambda address: make_config(ledger=address)):
            with pytest.raises(InvalidInput) as error:
                use(wrong)  # type: ignore[operator]
            assert "secret" not in str(error.value)


def test_a_ledger_is_the_same_with_and_without_its_password() -> None:
    named = "postgresql://ann@db/x?host=/tmp"
    assert are_one(named, "postgresql://ann:secret@db/x?host=%2Ftmp")
    assert not are_one(named, "postgresql://ann@db/y?host=/tmp")
    assert are_one("/a.db", "/a.db") and not are_one("/a.db", named)
