"""Which parameters of a module are trained: by a word, or by patterns of their names."""

from torch import nn

from dptune.engines.modules.patterns import fits, patterns_in
from dptune.engines.modules.problem import NOTHING_TRAINED, listed, must_be_none, wanting_gradients
from dptune.errors import InvalidInput

WORDS = ("all", "body", "biases", "last block", "first and last block")


def trained_names(module: nn.Module, asked: str) -> list[str]:
    """The names of the parameters that `asked` means, in the module's order: one of the words, or
    patterns such as "encoder.layer.11.*, classifier.*"."""
    names = [name for name, _ in module.named_parameters()]
    if asked == "all":
        found = wanting_gradients(module)
    elif asked == "body":
        found = _but_tables(module)
    elif asked == "biases":
        found = [name for name in names if name.rpartition(".")[2] == "bias"]
    elif asked in WORDS:
        found = _of_blocks(module, names, first=asked.startswith("first"))
    else:
        found = [name for name in names if fits(name, patterns_in(asked))]
    if not found and asked == "all":
        must_be_none([NOTHING_TRAINED])
    if not found:
        raise InvalidInput(
            f"nothing would be trained: {asked!r} fits none of the module's parameters "
            f"({listed(names)}). Use {', '.join(WORDS)}, or patterns of "
            'names such as "head.*", separated by commas.'
        )
    return found


def _but_tables(module: nn.Module) -> list[str]:
    """All but embeddings, and what is tied to them: they are large, and learn little of noise."""
    tables = {
        id(parameter)
        for one in module.modules()
        if isinstance(one, nn.Embedding)
        for parameter in one.parameters()
    }
    return [name for name, parameter in module.named_parameters() if id(parameter) not in tables]


def _of_blocks(module: nn.Module, names: list[str], *, first: bool) -> list[str]:
    """The last block with all that comes after it, such as a head; with the `first` block also all
    that comes before that, such as an embedding."""
    blocks = _blocks(module)
    places = [[i for i, name in enumerate(names) if name.startswith(block)] for block in blocks]
    kept = set(range(min(places[-1]), len(names)))
    if first:
        kept |= set(range(max(places[0]) + 1))
    return [name for i, name in enumerate(names) if i in kept]


def _blocks(module: nn.Module) -> list[str]:
    """How the names begin of the blocks of the module's largest list or sequence."""
    lists: dict[str, list[str]] = {}
    for name, one in module.named_modules():
        if isinstance(one, nn.ModuleList | nn.Sequential):
            prefix = f"{name}." if name else ""
            with_weights = [
                f"{prefix}{child}." for child, part in one.named_children() if [*part.parameters()]
            ]
            if len(with_weights) > 1:
                lists[name] = with_weights
    if not lists:
        raise InvalidInput(
            "the module has no nn.ModuleList or nn.Sequential of several blocks; say what is "
            'trained by patterns of names, such as "head.*".'
        )
    sizes = {
        name: sum(p.numel() for p in module.get_submodule(name).parameters()) for name in lists
    }
    return lists[max(sizes, key=lambda name: (sizes[name], -len(name)))]
