"""Functions of a user's own, by names that another process can find: FILE.py:NAME.

What is written down of a function is its name: "/home/ann/nets.py:make", "package.module:make", or
in a notebook "__main__:make". In the process that was given the function itself, the name stands
for it; in any other it is imported.

A run folder holds such names, too, and may come from somebody else. What it names is imported only
where this process was given the same name, or was asked to run it.
"""

import ast
import hashlib
import importlib
import importlib.machinery
import importlib.util
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dptune.errors import DptuneError, InvalidInput, OwnCodeProblem

if TYPE_CHECKING:
    from torch import nn

Function = Callable[..., Any]

_FORM = "FILE.py:NAME or package.module:NAME"
_NOTEBOOK = "__main__"
_GUARD = 'put the call under `if __name__ == "__main__":`'
PRETRAINED = "hf:"  # how factories begin that are no functions, but language models
_remembered: dict[str, Function] = {}
_run: set[str] = set()  # names of functions whose code was imported here, or may be
_files: dict[Path, tuple[str, ModuleType]] = {}  # imported by us, with a digest of what they held
_being_imported: list[str] = []


def reference(function: object, what: str) -> str:
    """The name of a function, which is remembered; a name that is given is made complete.

    `what` is what the function is to the user, such as "factory", for messages.
    """
    if isinstance(function, str):
        if what == "factory" and is_pretrained(function):
            place = pretrained_name(function)
            folder = place and Path(place).is_dir()
            return f"{PRETRAINED}{Path(place).absolute() if folder else place}"
        place, name = parts(function, what)
        return f"{Path(place).absolute() if _is_file(place) else place}:{name}"
    if hasattr(function, "parameters") and not isinstance(function, type):
        kind = _called(function)
        if what != "factory":
            raise InvalidInput(
                f"the {what} must be a function with a name, and this is a {kind}; call it in a "
                "function of your own (def NAME(outputs, targets): return ...)."
            )
        raise InvalidInput(
            f"the {what} must be a function, and this is a module of torch, a {kind}; give the "
            f"function that makes it (def {what}(): return ...)."
        )
    if not callable(function):
        raise InvalidInput(
            f"the {what} must be a function, or its name, {_FORM}; got {type(function).__name__}."
        )
    found = next(filter(None, (_name_in(home, function) for home in _homes(function))), None)
    if found is None:
        raise InvalidInput(
            f"the {what} {_called(function)} has no name by which it could be found again, as when "
            "the study is resumed or its model is loaded; define it by def (or give it a name) at "
            "the top level of a file or a notebook."
        )
    _remembered[found] = function
    return found


def is_pretrained(factory: str) -> bool:
    """Whether it is no function, but where a language model lies: hf:NAME[@REVISION], hf:FOLDER."""
    return factory.startswith(PRETRAINED)


def pretrained_name(factory: str) -> str:
    return factory.removeprefix(PRETRAINED)


def resolve(named: str, what: str) -> Function:
    """The function of that name: the one that `reference` was given in this process, else imported.

    Code at the top level of a file runs when it is imported.
    """
    if named in _remembered:
        return _remembered[named]
    place, name = parts(named, what)
    home = imported(Path(place)) if _is_file(place) else _package(place, what)
    function = _attribute(home, name)
    if callable(function):
        _run.add(named)
        return function
    if place == _NOTEBOOK:
        raise OwnCodeProblem(
            f"the {what} {name} was written in a notebook or a prompt, and is not known here; "
            "define it again under that name first, or put it into a file."
        )
    there = [key for key, value in vars(home).items() if _is_own(value, home)]
    raise OwnCodeProblem(
        f"{place} has no function {name} for the {what}; it has: {', '.join(there) or 'none'}."
    )


def must_be_given(names: Iterable[str], where: object, *, asked: bool = False) -> None:
    """Refuse functions that `where`, a file of a run, names unless this process was given or has
    imported each; `asked` gives it all of them, but none whose code lies in the run's folder."""
    for named in names:
        if named in _run or named in _remembered:
            continue
        file = _file_of(named)
        of_file = "" if file is None or named.startswith(str(file)) else f" of {file}"
        code = f"{where} names code of its own, {named}{of_file}, which would be run"
        if isinstance(where, Path) and file and file.is_relative_to(where.parent.resolve()):
            raise OwnCodeProblem(
                f"{code}, and lies in the run's folder, where dptune puts no code. Look at it; if "
                "you trust it, move it to another folder and import it first."
            )
        if not asked:
            raise OwnCodeProblem(
                f"{code}, and this process was not given that code. Where you trust it, ask for "
                "it: dptune.load(..., own_code=True), or --run-code on the command line."
            )
        _run.add(named)


def must_be_absolute(options: Mapping[str, object], where: Path) -> None:
    """Refuse a file of code that `where` names relative to the current folder: what runs would
    depend on where one stands, and dptune writes whole paths."""
    for value in options.values():
        place = value.rpartition(":")[0] if isinstance(value, str) else ""
        if _is_file(place) and not Path(place).is_absolute():
            raise OwnCodeProblem(
                f"{where} names code of its own, {value}, relative to the current folder. dptune "
                "writes whole paths, so the file was changed; nothing of it is run."
            )


def _file_of(named: str) -> Path | None:
    """Where the code of that name would be imported from, as far as it is known without that."""
    place = named.rpartition(":")[0]
    if _is_file(place):
        return Path(place).resolve()
    path = [*sys.path, str(Path.cwd())]
    spec = importlib.machinery.PathFinder.find_spec(place.partition(".")[0], path)
    return Path(spec.origin).resolve() if spec and spec.origin else None


def made(named: str) -> "nn.Module":
    """The module that the factory of that name returns; it is called without arguments."""
    from torch import nn

    make = resolve(named, "factory")
    try:
        module = make()
    except DptuneError:
        raise
    except Exception as problem:  # code of the user's own may raise anything
        raise OwnCodeProblem(
            f"the factory {named} failed: {type(problem).__name__}: {problem}. It is called "
            "without arguments and must return a torch module."
        ) from problem
    if not isinstance(module, nn.Module):
        raise OwnCodeProblem(
            f"the factory {named} must return a torch module; it returned {type(module).__name__}."
        )
    return module


def parts(named: str, what: str) -> tuple[str, str]:
    """Where a function is, and what it is called there."""
    place, _, name = named.rpartition(":")
    words = name.split(".") if _is_file(place) else [*place.split("."), *name.split(".")]
    if not place or not all(word.isidentifier() for word in words):
        raise InvalidInput(f"the {what} is named {_FORM}; got {named!r}.")
    return place, name


def imported(path: Path) -> ModuleType:
    """A file of Python as a module: the one that is running already, else executed now, once for
    what it holds. Its neighbours can be imported by it, as by a script."""
    path = path.absolute()
    if not path.is_file():
        raise OwnCodeProblem(f"there is no file {path}; a function of your own is named {_FORM}.")
    running = _running(path)
    if running is not None:
        return running
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    known = _files.get(path)
    if known is not None and known[0] == content:
        return known[1]
    name = _free_name(path)
    # Last, so that it hides nothing; processes that we start get the same list.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise OwnCodeProblem(f"{path} is not a file of Python; its name must end in .py.")
    module = importlib.util.module_from_spec(found)
    with _importing(str(path)):
        sys.modules[name] = module  # dataclasses and pickle look there
        try:
            found.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    _files[path] = content, module
    return module


def must_not_be_importing(doing: str) -> None:
    """Refuse a call at the top level of a file that is only being imported: by us, for a function
    in it, or by a process that multiprocessing started and that imports the script once more."""
    # How multiprocessing itself finds out, before it refuses to start processes.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise OwnCodeProblem(
            f"the script calls {doing} at its top level; {_GUARD}. Each process that the script "
            "starts imports it again, and would run and pay for the same studies again."
        )
    if _being_imported:
        place = _being_imported[-1]
        raise OwnCodeProblem(
            f"{place} calls {doing} at its top level, and is just being imported for a function "
            f"that it holds; {_GUARD}."
        )


def must_be_found_again(functions: Mapping[str, str]) -> None:
    """Refuse functions of the script that is being run, by what they are to the user, which another
    process could not import: to load a model, or to go on with a run, is to import them."""
    for what, named in functions.items():
        _must_be_found_again(named, what)


def _must_be_found_again(named: str, what: str) -> None:
    place, name = parts(named, what)
    home = _running(Path(place)) if _is_file(place) else None
    if home is None or home.__name__ != _NOTEBOOK:
        return
    body = ast.parse(Path(place).read_text(encoding="utf-8")).body
    held = {name for statement in body for name in _names_of(statement)}
    if name.partition(".")[0] not in held:
        raise InvalidInput(
            f"the {what} {name} must be at the top level of {place}, under no condition: whoever "
            "loads the model imports it from there. Move it up. Nothing was paid."
        )
    if any(_tunes(statement) for statement in body):
        raise InvalidInput(
            f"{place} calls tune at its top level, and whoever loads the model or goes on with the "
            f"run imports the {what} {name} from there, which would tune again. Put the call under "
            '`if __name__ == "__main__":`, or the function into a file of its own. Nothing was '
            "paid."
        )


def _names_of(statement: ast.stmt) -> Iterator[str]:
    """What a statement at the top level of a file gives names to."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        yield from (one.id for one in ast.walk(statement) if isinstance(one, ast.Name))


def _tunes(statement: ast.stmt) -> bool:
    """Whether it calls tune as soon as the file is imported."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return False
    if isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test):
        return False
    called = (one.func for one in ast.walk(statement) if isinstance(one, ast.Call))
    return any(getattr(one, "attr", getattr(one, "id", "")) == "tune" for one in called)


def _is_file(place: str) -> bool:
    return place.endswith(".py")


def _called(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _homes(function: object) -> Iterator[ModuleType]:
    """Where a function may have a name: where it was written, else in what is run."""
    for name in dict.fromkeys((getattr(function, "__module__", None), _NOTEBOOK)):
        home = sys.modules.get(name or "")
        if home is not None:
            yield home


def _name_in(home: ModuleType, function: object) -> str | None:
    """The function's name there; also of a lambda, or of what another function made."""
    name = _called(function)
    there = _attribute(home, name)
    # Methods are made anew whenever they are asked for, so equal is as good as the same.
    if type(there) is not type(function) or there != function:
        names = [key for key, value in vars(home).items() if value is function]
        if not names:
            return None
        name = names[0]
    called = home.__name__
    if called == _NOTEBOOK and home.__spec__ is not None:  # python -m package.module
        called = home.__spec__.name
    file = Path(getattr(home, "__file__", None) or "")
    # A file that is in no package is found by its path, from whatever folder one asks.
    if "." not in called and file.name != "__init__.py" and _is_file(file.name):
        called = str(file.absolute())
    return f"{called}:{name}"


def _attribute(home: object, name: str) -> object | None:
    for word in name.split("."):
        home = getattr(home, word, None)
    return home


def _is_own(value: object, home: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", None) == home.__name__


def _running(path: Path) -> ModuleType | None:
    """The file as Python itself has imported it, or runs it."""
    if str(path) in _being_imported:  # half of it is there, by us
        return None
    ours = [module for _, module in _files.values()]
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        # Names first: there are thousands of modules.
        same = isinstance(file, str) and file.endswith(path.name) and Path(file).absolute() == path
        if same and module not in ours:
            return module
    return None


def _free_name(path: Path) -> str:
    """The plain one where nothing else has it, so that other processes find what is pickled."""
    known = _files.get(path)
    if known is not None:
        return known[1].__name__
    try:
        taken = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError):
        taken = None
    if taken is None and path.stem.isidentifier() and path.stem not in sys.modules:
        return path.stem
    if taken is not None and taken.origin == str(path):
        return path.stem
    return f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def _package(name: str, what: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    with _importing(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as problem:
            if problem.name is None or not name.startswith(problem.name):
                raise
            raise OwnCodeProblem(
                f"there is no module {name} for the {what}; install it, call this from the folder "
                "that it is in, or name its file: FILE.py:NAME."
            ) from None


@contextmanager
def _importing(place: str) -> Iterator[None]:
    if place in _being_imported:
        raise OwnCodeProblem(
            f"{place} asks for itself while it is imported; put what it does under "
            '`if __name__ == "__main__":`.'
        )
    _being_imported.append(place)
    try:
        yield
    except DptuneError:
        raise
    except (Exception, SystemExit) as problem:  # code of the user's own may raise anything
        raise OwnCodeProblem(
            f"{place} cannot be imported: {type(problem).__name__}: {problem}."
        ) from problem
    finally:
        _being_imported.pop()
