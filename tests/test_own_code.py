"""Functions of a user's own get names, by which this process and any other finds them again."""

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dptune
from dptune import own_code
from dptune.data import Data
from dptune.errors import InvalidInput
from dptune.own_code import made, reference, resolve

HERE = str(Path(__file__).absolute())


def make() -> torch.nn.Module:
    return torch.nn.Linear(2, 2)


class Net(torch.nn.Linear):
    @classmethod
    def small(cls) -> "Net":
        return cls(2, 2)


def _nested() -> Callable[[], torch.nn.Module]:
    def inner() -> torch.nn.Module:
        return torch.nn.Linear(2, 2)

    return inner


short = lambda: torch.nn.Linear(2, 2)  # noqa: E731
inside = _nested()
half = functools.partial(torch.nn.Linear, 2, 2)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (make, f"{HERE}:make"),
        (Net, f"{HERE}:Net"),
        (Net.small, f"{HERE}:Net.small"),
        (short, f"{HERE}:short"),
        (inside, f"{HERE}:inside"),
        (torch.nn.functional.cross_entropy, "torch.nn.functional:cross_entropy"),
    ],
)
def test_a_function_has_a_name_that_stands_for_it(
    function: Callable[..., object], name: str
) -> None:
    assert reference(function, "factory") == name
    assert resolve(name, "factory") == function


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: None, "<lambda> has no name by which another process"),
        (_nested(), r"inner has no name.*at the top level of a file"),
        (half, "partial has no name"),
        (torch.nn.CrossEntropyLoss(), "a torch module, a CrossEntropyLoss"),
        (3, "must be a function.*got int"),
        ("make", r"must be FILE.py:NAME or package.module:NAME; got 'make'"),
        ("nets.py:", "must be FILE.py:NAME"),
        ("a b:make", "must be FILE.py:NAME"),
    ],
)
def test_function_without_importable_name_is_refused(function: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        reference(function, "factory")


def test_the_name_of_a_file_is_made_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = reference("nets.py:make", "factory")
    assert named == f"{tmp_path}/nets.py:make"
    assert reference("torch.nn:Linear", "factory") == "torch.nn:Linear"
    with pytest.raises(InvalidInput, match=r"there is no file .*nets.py"):
        resolve(named, "factory")
    Path("nets.py").write_text("import neighbour\nmake = neighbour.make\nclass Net: pass")
    Path("neighbour.py").write_text("import torch\ndef make(): return torch.nn.Linear(2, 3)")
    monkeypatch.chdir("/")
    assert made(named).out_features == 3
    with pytest.raises(InvalidInput, match=r"nets.py has no function build .*it has: Net"):
        resolve(f"{tmp_path}/nets.py:build", "factory")


def test_file_is_imported_once_per_content(tmp_path: Path) -> None:
    path = tmp_path / "counted_nets.py"
    path.write_text("def make(): return 1")
    first = resolve(f"{path}:make", "factory")
    assert resolve(f"{path}:make", "factory") is first
    path.write_text("def make(): return 'another'")
    assert resolve(f"{path}:make", "factory")() == "another"
    # Another file of the same name does not take its place.
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "counted_nets.py"
    other.write_text("def make(): return 'elsewhere'")
    assert resolve(f"{other}:make", "factory")() == "elsewhere"
    assert resolve(f"{path}:make", "factory")() == "another"


def test_a_file_may_be_called_like_a_package(tmp_path: Path) -> None:
    path = tmp_path / "json.py"
    path.write_text("def make(): return 'mine'")
    assert resolve(f"{path}:make", "factory")() == "mine"
    import json

    assert json.loads("1") == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import torhc", "cannot be imported: ModuleNotFoundError"),
        ("def make(:", "cannot be imported: SyntaxError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("def make(): raise KeyError('x')", r"make failed: KeyError: 'x'. It is called without"),
        ("def make(size): pass", "failed: TypeError"),
        ("def make(): return 3", "must return a torch module; it returned int"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "wrong_nets.py").write_text(code)
    with pytest.raises(InvalidInput, match=said):
        made(f"{tmp_path}/wrong_nets.py:make")


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"there is no module nowhere.nets for the loss"):
        resolve("nowhere.nets:loss", "loss")
    with pytest.raises(InvalidInput, match=r"torch\.nn has no function make"):
        resolve("torch.nn:make", "factory")


TUNES = """
import dptune, torch

def make():
    return torch.nn.Linear(2, 2)

data = dptune.Data(torch.zeros(9, 2), torch.zeros(9).long(), classes=[0, 1])
dptune.tune(data, budget=dptune.Budget(1.0, 1e-5))
"""


def test_a_script_that_tunes_at_its_top_level_is_not_begun_again(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TUNES)
    with pytest.raises(InvalidInput, match=r"script.py calls tune at its top level.*__main__"):
        made(f"{tmp_path}/script.py:make")
    (tmp_path / "again.py").write_text("import dptune\ndptune.resume('run')\n")
    with pytest.raises(InvalidInput, match=r"again.py calls resume at its top level"):
        made(f"{tmp_path}/again.py:make")
    # And then it is over.
    own_code.must_not_be_importing("tune")
    path = tmp_path / "itself.py"
    path.write_text(f"from dptune.own_code import resolve\nresolve({str(path) + ':make'!r}, 'x')")
    with pytest.raises(InvalidInput, match=r"itself.py imports itself"):
        made(f"{path}:make")


NAMES = """
from dptune.own_code import reference, resolve

def make():
    pass

if __name__ == "__main__":
    print(reference(make, "factory"))
    assert resolve(reference(make, "factory"), "factory") is make
"""


def _printed(*arguments: str, stdin: str = "", cwd: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], input=stdin, capture_output=True, text=True, cwd=cwd
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_functions_of_a_script_a_module_and_a_notebook_have_names(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(NAMES)
    assert _printed("script.py", cwd=tmp_path) == f"{tmp_path}/script.py:make"
    assert _printed("-m", "script", cwd=tmp_path) == f"{tmp_path}/script.py:make"
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "nets.py").write_text(NAMES)
    assert _printed("-m", "package.nets", cwd=tmp_path) == "package.nets:make"
    assert _printed("-", stdin=NAMES) == "__main__:make"


def test_a_function_of_a_notebook_is_asked_for_elsewhere() -> None:
    with pytest.raises(InvalidInput, match="make_it was defined in a notebook"):
        resolve("__main__:make_it", "factory")


WORKER = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from dptune.own_code import reference, resolve

class Thing:
    pass

def make():
    return Thing()

def call(named):
    return resolve(named, "factory")()

if __name__ == "__main__":
    import nets
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        for function in (make, nets.make):
            made = pool.submit(call, reference(function, "factory")).result()
            assert type(made) is type(function()), made
    print("both")
"""


def test_processes_of_ours_find_functions_of_files_and_their_classes(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("class Net: pass\ndef make(): return Net()")
    (tmp_path / "script.py").write_text(WORKER)
    assert _printed("script.py", cwd=tmp_path) == "both"


def test_tuning_is_not_refused_elsewhere() -> None:
    data = Data(torch.zeros(9, 2), torch.zeros(9).long(), classes=[0, 1])
    with pytest.raises(InvalidInput, match="such as LinearEngine"):
        dptune.tune(data, budget=dptune.Budget(1.0, 1e-5), engine=3)  # type: ignore[arg-type]
