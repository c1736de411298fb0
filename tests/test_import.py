"""`import dptune` stays light, and the public names are there."""

import ast
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import pytest

import dptune
from support.loaded import loaded_by, loaded_by_command

SHOWN = "rich"  # the command line prints with it
TRAINS = ("torch", "transformers", "ray", "matplotlib", "sqlalchemy", "dp_accounting")
HEAVY = (*TRAINS, SHOWN)
HEAVIER = (*TRAINS, "pyarrow", "pandas", "sklearn")  # of the command line
LAZY = (
    "dptune",
    "dptune.data",
    "dptune.export",
    "dptune.ledger",
    "dptune.report",
    "dptune.study",
)
# Everything that 0.1 promised.
OLD_NAMES = [
    "Budget",
    "BudgetExceeded",
    "Composition",
    "DPLinearClassifier",
    "DPLinearRegressor",
    "Data",
    "DiskRows",
    "DptuneError",
    "FullBatchRun",
    "GridSearch",
    "Guarantee",
    "HeldOutScore",
    "Hypo",
    "Ledger",
    "LinearEngine",
    "LinearModel",
    "LinearScaling",
    "MemoryRows",
    "NoisyCount",
    "NoisyScore",
    "OneStep",
    "PaperLine",
    "Preparation",
    "Preprocessing",
    "Price",
    "PrivateMean",
    "PrivateSelection",
    "ProcessExecutor",
    "PublicScore",
    "RandomSearch",
    "RandomStopping",
    "Randomness",
    "Receipt",
    "SampledRun",
    "SearchMethod",
    "SerialExecutor",
    "Space",
    "StudyResult",
    "SubsetSearch",
    "SubsetSelection",
    "Sweep",
    "TrainPlan",
    "TrainedModel",
    "UnitNoise",
    "UnpaidScore",
    "Wosm",
    "fingerprint_arrays",
    "fingerprint_file",
    "load",
    "load_data",
    "model_card",
    "resume",
    "search_picture",
    "split_budget",
    "tune",
    "write_chunks",
]


def test_importing_dptune_loads_nothing_heavy() -> None:
    assert loaded_by("import dptune").isdisjoint(HEAVY)


def test_names_of_accounting_and_data_load_nothing_that_trains_or_draws() -> None:
    assert loaded_by("from dptune import Budget, data").isdisjoint(HEAVY)


@pytest.mark.parametrize("asked", ["--help", "tune --help", "ledger reserve --help"], ids=str.split)
def test_help_loads_neither_numbers_nor_prices(asked: str) -> None:
    loaded = loaded_by_command(*asked.split())
    assert SHOWN in loaded
    assert loaded.isdisjoint((*HEAVIER, "numpy", "scipy", "dptune.accounting", "dptune.privacy"))


@pytest.mark.parametrize(
    "asked",
    [
        "account --epsilon 1 --delta 1e-5 --steps 100",
        "plan --epsilon 1 --delta 1e-5 --sweep 3@0.1",
    ],
    ids=lambda asked: asked.split()[0],
)
def test_pricing_loads_nothing_that_trains_or_stores(asked: str) -> None:
    loaded = loaded_by_command(*asked.split())
    assert "dptune.accounting" in loaded
    assert loaded.isdisjoint((*HEAVIER, "scipy.fft", "scipy.optimize", "scipy.stats"))


def test_importing_an_estimator_loads_nothing_that_reads_trains_or_pays() -> None:
    # scikit-learn loads pandas where it is installed, and pandas loads pyarrow.
    loaded = loaded_by("sys.modules['pandas'] = None\nfrom dptune import DPLinearClassifier")
    assert "sklearn" in loaded
    assert loaded.isdisjoint((*HEAVY, "pyarrow", "dptune.study"))


def test_every_public_name_can_be_imported() -> None:
    assert len(dptune.__all__) <= 30
    for name in dptune.__all__:
        assert getattr(dptune, name).__name__ == name
    assert set(dptune.__all__) <= set(dir(dptune))


@pytest.mark.parametrize("name", OLD_NAMES)
def test_a_name_of_the_first_version_works_or_says_where_it_is_now(name: str) -> None:
    if name in dptune.__all__:
        exec(f"from dptune import {name}", {})
        return
    with pytest.raises(AttributeError, match=f"dptune.{name} has moved: use") as error:
        getattr(dptune, name)
    with pytest.raises(ImportError, match=f"dptune.{name} has moved: use") as of_import:
        exec(f"from dptune import {name}", {})
    assert str(of_import.value) == str(error.value)
    assert not hasattr(dptune, name) and name not in dir(dptune)
    new = str(error.value).split()[-1]
    assert eval(new, {"dptune": dptune}).__name__ == name
    exec(f"from {new.removesuffix(f'.{name}')} import {name}", {})


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_and_python_are_told_the_same_names(package: str) -> None:
    module = import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    (told,) = (node for node in tree.body if isinstance(node, ast.If))
    names = {
        alias.asname
        for node in told.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.module != "dptune"
    }
    assert names == set(module.__all__)
    modules = {
        alias.asname
        for node in told.body
        if isinstance(node, ast.ImportFrom) and node.module == "dptune"
        for alias in node.names
    }
    assert modules == set(getattr(module, "_MODULES", ()))


@pytest.mark.parametrize("package", LAZY)
def test_a_lazy_package_has_its_names_and_its_modules(package: str) -> None:
    module = import_module(package)
    for name in module.__all__:
        assert getattr(module, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'epsilons'"):
        getattr(module, "epsilons")  # noqa: B009


def test_the_package_says_that_it_is_typed() -> None:
    assert (files(dptune) / "py.typed").is_file()


def test_a_name_that_is_not_there_says_so() -> None:
    try:
        dptune.epsilons  # noqa: B018
    except AttributeError as error:
        assert "epsilons" in str(error)
    else:
        raise AssertionError("expected an AttributeError")
