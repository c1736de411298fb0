"""Users' own functions, by names that other processes can import: FILE.py:NAME.

Only the name of a function is stored: "/home/ann/nets.py:make", "package.module:make", or in a
notebook "__main__:make". The process that received the function itself uses it under that name; any
other process imports it.

A run folder contains such names, too, and may come from another person. Its code is imported only
if this process received the same name, or was asked to run it.
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
PRETRAINED = "hf:"  # prefix of factories that are language models, not functions
_remembered: dict[str, Function] = {}
_run: set[str] = set()  # names of functions whose code was imported here, or may be
_files: dict[Path, tuple[str, ModuleType]] = {}  # imported by us, with a digest of their content
_being_imported: list[str] = []


def reference(function: object, what: str) -> str:
    """The name of a function, which is remembered for this process. A name is completed to an
    absolute one.

    `what` is the function's role in messages, such as "factory".
    """
    if isinstance(function, str):
        if what == "factory" and is_pretrained(function):
            place = pretrained_name(function)
            folder = place and Path(place).is_dir()
            return f"{PRETRAINED}{Path(place).absolute() if folder else place}"
        place, name = parts(function, what)
        return f"{Path(place).absolute() if _is_file(place) else place}:{name}"
    if hasattr(function, "parameters") and not isinstance(function, type):
        kind = _name_of(function)
        if what != "factory":
            raise InvalidInput(
                f"the {what} must be a function with a name, and this is a {kind}; call it in a "
                "function of your own (def NAME(outputs, targets): return ...)."
            )
        raise InvalidInput(
            f"the {what} must be a function, and this is a torch module, a {kind}; give the "
            f"function that returns it (def {what}(): return ...)."
        )
    if not callable(function):
        raise InvalidInput(
            f"the {what} must be a function, or its name, {_FORM}; got {type(function).__name__}."
        )
    own_name = next(filter(None, (_name_in(home, function) for home in _homes(function))), None)
    if own_name is None:
        raise InvalidInput(
            f"the {what} {_name_of(function)} has no name by which another process can import it, "
            "for example to resume the study or to load its model; define it by def (or give it a "
            "name) at the top level of a file or a notebook."
        )
    _remembered[own_name] = function
    return own_name


def is_pretrained(factory: str) -> bool:
    """Whether a factory is the place of a language model: hf:NAME[@REVISION] or hf:FOLDER."""
    return factory.startswith(PRETRAINED)


def pretrained_name(factory: str) -> str:
    return factory.removeprefix(PRETRAINED)


def resolve(named: str, what: str) -> Function:
    """The function of that name: the one that `reference` remembered, or else the imported one.

    Importing a file runs the code at its top level.
    """
    if named in _remembered:
        return _remembered[named]
    place, name = parts(named, what)
    home = import_file(Path(place)) if _is_file(place) else _import_package(place, what)
    function = _attribute(home, name)
    if callable(function):
        _run.add(named)
        return function
    if place == _NOTEBOOK:
        raise OwnCodeProblem(
            f"the {what} {name} was defined in a notebook or a prompt, and is not defined in this "
            "process; define it again under that name first, or put it into a file."
        )
    functions = [key for key, value in vars(home).items() if _is_own(value, home)]
    raise OwnCodeProblem(
        f"{place} has no function {name} for the {what}; it has: {', '.join(functions) or 'none'}."
    )


def must_be_given(names: Iterable[str], where: object, *, asked: bool = False) -> None:
    """Refuse functions named in `where`, a file of a run, unless this process already has each.
    `asked` allows all of them except code in the run's folder."""
    for named in names:
        if named in _run or named in _remembered:
            continue
        file = _file_of(named)
        of_file = "" if file is None or named.startswith(str(file)) else f" of {file}"
        code = f"{where} names its own code, {named}{of_file}, which would be run"
        if isinstance(where, Path) and file and file.is_relative_to(where.parent.resolve()):
            raise OwnCodeProblem(
                f"{code}, and it lies in the run's folder, where dptune never puts code. Read it; "
                "if you trust it, move it to another folder and import it first."
            )
        if not asked:
            raise OwnCodeProblem(
                f"{code}, and this process has not imported that code. If you trust it, allow it: "
                "dptune.load(..., own_code=True), or --run-code on the command line."
            )
        _run.add(named)


def must_be_absolute(options: Mapping[str, object], where: Path) -> None:
    """Refuse a file of code that `where` names by a relative path: the code would depend on the
    current folder, and dptune writes only absolute paths."""
    for value in options.values():
        place = value.rpartition(":")[0] if isinstance(value, str) else ""
        if _is_file(place) and not Path(place).is_absolute():
            raise OwnCodeProblem(
                f"{where} names its own code, {value}, by a relative path. dptune writes absolute "
                "paths, so the file was changed and its code is not run; restore the file."
            )


def _file_of(named: str) -> Path | None:
    """The file that the name would be imported from, if it can be found without importing."""
    place = named.rpartition(":")[0]
    if _is_file(place):
        return Path(place).resolve()
    path = [*sys.path, str(Path.cwd())]
    spec = importlib.machinery.PathFinder.find_spec(place.partition(".")[0], path)
    return Path(spec.origin).resolve() if spec and spec.origin else None


def made(named: str) -> "nn.Module":
    """The module that the factory of that name returns when called without arguments."""
    from torch import nn

    make = resolve(named, "factory")
    try:
        module = make()
    except DptuneError:
        raise
    except Exception as problem:  # a user's code may raise any error
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
    """The file or module of a function, and its name there."""
    place, _, name = named.rpartition(":")
    words = name.split(".") if _is_file(place) else [*place.split("."), *name.split(".")]
    if not place or not all(word.isidentifier() for word in words):
        raise InvalidInput(f"the name of the {what} must be {_FORM}; got {named!r}.")
    return place, name


def import_file(path: Path) -> ModuleType:
    """Import a Python file, unless this process already runs it or has imported the same content.
    It can import its neighbours, as a script can."""
    path = path.absolute()
    if not path.is_file():
        raise OwnCodeProblem(f"there is no file {path}; name your own function as {_FORM}.")
    running = _running(path)
    if running is not None:
        return running
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    earlier = _files.get(path)
    if earlier is not None and earlier[0] == content:
        return earlier[1]
    name = _free_name(path)
    # Last, so that it shadows nothing; processes that we start get the same list.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OwnCodeProblem(f"{path} is not a Python file; its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    with _importing(str(path)):
        sys.modules[name] = module  # dataclasses and pickle need it there
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    _files[path] = content, module
    return module


def must_not_be_importing(doing: str) -> None:
    """Refuse a call at the top level of a file that is only being imported. Either we import it for
    a function in it, or a process of multiprocessing imports the script again."""
    # The test that multiprocessing itself uses before it refuses to start processes.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise OwnCodeProblem(
            f"the script calls {doing} at its top level; {_GUARD}. Each process that the script "
            "starts imports it again, and would run and pay for the same studies again."
        )
    if _being_imported:
        place = _being_imported[-1]
        raise OwnCodeProblem(
            f"{place} calls {doing} at its top level, and is only being imported for one of its "
            f"functions; {_GUARD}."
        )


def must_be_found_again(functions: Mapping[str, str]) -> None:
    """Refuse functions of the running script, by what they are to the user, that another process
    could not import, as it must to load a model or to resume a run."""
    for what, named in functions.items():
        _must_be_found_again(named, what)


def _must_be_found_again(named: str, what: str) -> None:
    if is_pretrained(named):
        return
    place, name = parts(named, what)
    home = _running(Path(place)) if _is_file(place) else None
    if home is None or home.__name__ != _NOTEBOOK:
        return
    body = ast.parse(Path(place).read_text(encoding="utf-8")).body
    defined = {name for statement in body for name in _names_defined_by(statement)}
    if name.partition(".")[0] not in defined:
        raise InvalidInput(
            f"the {what} {name} must be at the top level of {place}, under no condition, because "
            "loading the model imports it from there. Move it up. Nothing was paid."
        )
    if any(_calls_tune(statement) for statement in body):
        raise InvalidInput(
            f"{place} calls tune at its top level. To load the model or to resume the run, the "
            f"{what} {name} is imported from there, which would tune again. Put the call under "
            '`if __name__ == "__main__":`, or the function into a file of its own. Nothing was '
            "paid."
        )


def _names_defined_by(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top level of a file defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        yield from (one.id for one in ast.walk(statement) if isinstance(one, ast.Name))


def _calls_tune(statement: ast.stmt) -> bool:
    """Whether the statement calls tune when the file is imported."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return False
    if isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test):
        return False
    functions = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(getattr(each, "attr", getattr(each, "id", "")) == "tune" for each in functions)


def _is_file(place: str) -> bool:
    return place.endswith(".py")


def _name_of(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _homes(function: object) -> Iterator[ModuleType]:
    """The modules in which a function may have a name: its own, or the running script."""
    for name in dict.fromkeys((getattr(function, "__module__", None), _NOTEBOOK)):
        home = sys.modules.get(name or "")
        if home is not None:
            yield home


def _name_in(home: ModuleType, function: object) -> str | None:
    """The function's full name in this module, also of a lambda or of another function's result."""
    name = _name_of(function)
    value = _attribute(home, name)
    # Each access to a method makes a new object, so methods are compared by equality.
    if type(value) is not type(function) or value != function:
        names = [key for key, value in vars(home).items() if value is function]
        if not names:
            return None
        name = names[0]
    place = home.__name__
    if place == _NOTEBOOK and home.__spec__ is not None:  # python -m package.module
        place = home.__spec__.name
    file = Path(getattr(home, "__file__", None) or "")
    # A file outside packages is named by its path, which is valid from every folder.
    if "." not in place and file.name != "__init__.py" and _is_file(file.name):
        place = str(file.absolute())
    return f"{place}:{name}"


def _attribute(home: object, name: str) -> object | None:
    for word in name.split("."):
        home = getattr(home, word, None)
    return home


def _is_own(value: object, home: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", None) == home.__name__


def _running(path: Path) -> ModuleType | None:
    """The module of a file that Python itself has imported or runs."""
    if str(path) in _being_imported:  # our own import, which is not complete
        return None
    ours = [module for _, module in _files.values()]
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        # Compare names first, since there are thousands of modules.
        same = isinstance(file, str) and file.endswith(path.name) and Path(file).absolute() == path
        if same and module not in ours:
            return module
    return None


def _free_name(path: Path) -> str:
    """The file's plain name if no other module has it, so that other processes can unpickle."""
    earlier = _files.get(path)
    if earlier is not None:
        return earlier[1].__name__
    try:
        taken = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError):
        taken = None
    if taken is None and path.stem.isidentifier() and path.stem not in sys.modules:
        return path.stem
    if taken is not None and taken.origin == str(path):
        return path.stem
    return f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def _import_package(name: str, what: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    with _importing(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as problem:
            if problem.name is None or not name.startswith(problem.name):
                raise
            raise OwnCodeProblem(
                f"there is no module {name} for the {what}; install it, run this in its folder, or "
                "name its file: FILE.py:NAME."
            ) from None


@contextmanager
def _importing(place: str) -> Iterator[None]:
    if place in _being_imported:
        raise OwnCodeProblem(
            f'{place} imports itself; put the code that it runs under `if __name__ == "__main__":`.'
        )
    _being_imported.append(place)
    try:
        yield
    except DptuneError:
        raise
    except (Exception, SystemExit) as problem:  # a user's code may raise any error
        raise OwnCodeProblem(
            f"{place} cannot be imported: {type(problem).__name__}: {problem}."
        ) from problem
    finally:
        _being_imported.pop()
