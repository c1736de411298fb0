"""Read weights from a safetensors file into a network."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from dptune.errors import InvalidInput
from dptune.table_files import listed


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    """Return the arrays of the file by name, and its metadata."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise InvalidInput(f"There is no file of weights at {path}. Give a .safetensors file.")
    try:
        with safe_open(path, framework="pt") as file:
            return {
                name: file.get_tensor(name) for name in sorted(file.keys())
            }, file.metadata() or {}
    except (SafetensorError, OSError) as problem:
        raise InvalidInput(f"{path} is not a safetensors file of weights: {problem}.") from problem


def put_weights(
    module: nn.Module, weights: Mapping[str, Tensor], where: object, head: tuple[str, ...] = ()
) -> None:
    """Fill the module. Names that begin with one of `head` belong to the classifier and are left
    out; all others must fit."""
    kept = {name: value for name, value in weights.items() if not name.startswith(head)}
    try:
        missing, unknown = module.load_state_dict(kept, strict=False)
    except RuntimeError as problem:
        raise InvalidInput(f"The weights in {where} do not fit: {problem}") from problem
    for what, names in (("lacks", missing), ("has the unknown arrays", unknown)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise InvalidInput(
                f"The weights in {where} are not for this network: the file {what} "
                f"{listed(sorted(names)[:3])}{more}. Give the weights of this network."
            )
