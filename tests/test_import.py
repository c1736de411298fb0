"""`import dptune` stays light, and the public names are there."""

import subprocess
import sys
from importlib.resources import files

import dptune

HEAVY = ("torch", "transformers", "ray", "matplotlib", "sqlalchemy", "dp_accounting", "rich")


def test_importing_dptune_loads_nothing_heavy() -> None:
    code = f"import sys, dptune; print([m for m in {HEAVY!r} if m in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"


def test_every_public_name_can_be_imported() -> None:
    for name in dptune.__all__:
        assert getattr(dptune, name).__name__ == name
    assert set(dptune.__all__) <= set(dir(dptune))


def test_the_package_says_that_it_is_typed() -> None:
    assert (files(dptune) / "py.typed").is_file()


def test_a_name_that_is_not_there_says_so() -> None:
    try:
        dptune.epsilons  # noqa: B018
    except AttributeError as error:
        assert "epsilons" in str(error)
    else:
        raise AssertionError("expected an AttributeError")
