"""Data sets as the package `datasets` has them, from the Hugging Face hub or from disk."""

from collections.abc import Mapping
from typing import Any

from dptune.errors import InvalidInput, MissingExtra


def datasets_package() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtra(
            "a Hugging Face data set needs the package datasets: pip install 'dptune[hub]'."
        ) from None
    return datasets


def load_from_hub(
    name: str, config: str | None = None, revision: str | None = None
) -> dict[str, Any]:
    """The splits of a data set."""
    datasets = datasets_package()
    pinned = {} if revision is None else {"revision": revision}
    try:
        stored = datasets.load_dataset(name, config, **pinned)
    except Exception as error:  # the hub fails in more ways than can be listed
        reason = str(error).split("\n")[0].rstrip(".")
        raise InvalidInput(
            f"the data set {name!r} could not be had from the hub: {reason}. Check the name and "
            "the connection; or save_to_disk it where there is one, and give the folder."
        ) from None
    return splits_of(stored)


def splits_of(stored: Any) -> dict[str, Any]:
    """By name; a data set without splits is one to train on."""
    return dict(stored) if isinstance(stored, Mapping) else {"train": stored}
