"""`import dptune` stays light, and the public names are there."""

import ast
import subprocess
import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import pytest

import dptune

HEAVY = ("torch", "transformers", "ray", "matplotlib", "sqlalchemy", "dp_accounting", "rich")
SHOWN = "rich"  # the command line prints with it
LAZY = ("dptune", "dptune.data", "dptune.export", "dptune.report")
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


def heavy_after(importing: str) -> list[str]:
    """The heavy packages that a fresh process has loaded after this."""
    code = f"import sys; {importing}; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_dptune_loads_nothing_heavy() -> None:
    assert heavy_after("import dptune") == []


@pytest.mark.parametrize("importing", ["import dptune.cli.app", "from dptune import Budget, data"])
def test_what_trains_and_draws_is_loaded_by_what_needs_it(importing: str) -> None:
    assert set(heavy_after(importing)) <= {SHOWN}


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
