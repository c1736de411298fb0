"""Where a source is, what it is called, how it is recognised, and which reader opens it."""

from importlib import resources
from pathlib import Path

from dptune.data.declared_files import Declared
from dptune.data.disk import INDEX
from dptune.data.extracted import (
    CONTENTS,
    SHIFT,
    fingerprint_extracted,
    from_extracted,
    is_extracted,
)
from dptune.data.fingerprint import fingerprint_file, fingerprint_folder
from dptune.data.parquet_rows import is_large
from dptune.data.readers import (
    DEFAULT_LABEL,
    READERS,
    SAVED_TO_DISK,
    Source,
    from_chunks,
    from_declared_files,
    from_folder,
    from_hub,
    from_large_files,
    from_parquet_folder,
)
from dptune.errors import InvalidInput
from dptune.table_files import (
    must_hold_something,
    must_not_be_nearly_csv,
    parquet_files,
    table_kind,
)

DEMO, HUB = "demo", "hub:"
_KNOWN_FOLDERS = (*SAVED_TO_DISK, INDEX, CONTENTS)


def open_source(source: str | Path, label: str | None, declared: Declared | None = None) -> Source:
    """The parts of a source, which are read when they are called."""
    if not isinstance(source, str | Path):
        raise InvalidInput(f"a source is a path, 'demo' or 'hub:NAME'; got {source!r}.")
    if is_hub(source):
        return from_hub(str(source).removeprefix(HUB), label or DEFAULT_LABEL, declared)
    path = path_of(source)
    must_exist(source)
    if declared is not None:
        return _open_declared(source, path, declared)
    if path.is_dir():
        return _open_folder(path, label)
    must_not_be_nearly_csv(path)
    ending = next((each for each in READERS if path.name.lower().endswith(each)), None)
    if ending is None:
        raise InvalidInput(
            f"{str(source)!r} does not end in one of {', '.join(READERS)}; convert it to one of "
            "these, or rename it if it is one."
        )
    must_hold_something(path)
    return READERS[ending](path, label)


def _open_folder(path: Path, label: str | None) -> Source:
    if is_extracted(path):
        return from_extracted(path)
    if holds_chunks(path):
        return from_chunks(path)
    if _table_files(path):
        return from_parquet_folder(path, label)
    must_be_known_folder(path)
    return from_folder(path, label or DEFAULT_LABEL)


def _open_declared(source: str | Path, path: Path, declared: Declared) -> Source:
    if any((path / name).exists() for name in SAVED_TO_DISK):
        return from_folder(path, declared.label, declared)
    files = named_files(source)
    # Rows beside the private ones are read after them, and kept.
    private = declared.vocabularies is None
    if private and table_kind(files[0]) == "parquet" and is_large(files, declared):
        return from_large_files(files, path, declared)
    return from_declared_files(files, path, declared)


def named_files(source: str | Path) -> list[Path]:
    """The files of a table whose columns have names, as declared columns must."""
    must_not_be_nearly_csv(path_of(source))
    files = _table_files(path_of(source))
    if not files:
        raise InvalidInput(
            f"columns are declared by name, and those of {str(source)!r} have none: give a .csv, "
            ".csv.gz or .parquet file, a folder of .parquet files or one that save_to_disk wrote."
        )
    for file in files:
        must_hold_something(file)
    return files


def _table_files(path: Path) -> list[Path]:
    """A csv or a Parquet file, or the Parquet files of a folder; none of anything else."""
    if path.is_dir() and not any((path / name).exists() for name in _KNOWN_FOLDERS):
        return parquet_files(path)
    return [path] if table_kind(path) else []


def must_exist(source: str | Path) -> None:
    if not path_of(source).exists():
        raise InvalidInput(
            f"there is no file or folder {str(source)!r}; give a path, 'demo' for the bundled data "
            "set, or 'hub:NAME'."
        )


def must_be_known_folder(path: Path) -> None:
    if not any((path / name).exists() for name in _KNOWN_FOLDERS) and not parquet_files(path):
        raise InvalidInput(
            f"{str(path)!r} is a folder, but not one that save_to_disk, write_chunks or dptune "
            "extract wrote, and it holds no .parquet files; give such a folder, a file, or 'demo'. "
            "If it holds pictures, make features of them first (dptune extract), and give the "
            "folder of those."
        )


def identify(source: str | Path) -> str:
    """The fingerprint of a source; for a data set of the hub, its address."""
    if is_hub(source):
        return str(source)
    path = path_of(source)
    if is_extracted(path):
        return fingerprint_extracted(path)
    return fingerprint_folder(path) if path.is_dir() else fingerprint_file(path)


def default_name(source: str | Path) -> str:
    """What a data set is called unless the user names it."""
    if is_hub(source):
        return str(source).removeprefix(HUB)
    path = Path(source)
    if path.is_dir():  # in whose name a dot starts no suffix
        return path.absolute().name.removeprefix(SHIFT if is_extracted(path) else "")
    return path.name[: -len(".csv.gz")] if path.name.lower().endswith(".csv.gz") else path.stem


def path_of(source: str | Path) -> Path:
    if source == DEMO:
        return Path(str(resources.files("dptune.data") / "demo" / "cifar10_resnet20.npz"))
    return Path(source)


def is_hub(source: str | Path) -> bool:
    return isinstance(source, str) and source.startswith(HUB)


def is_npz(source: str | Path) -> bool:
    return path_of(source).suffix.lower() == ".npz"


def holds_chunks(path: Path) -> bool:
    return (path / INDEX).is_file()
