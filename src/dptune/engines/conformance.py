"""Whether an engine keeps the promises that the price of its runs rests on."""

from collections.abc import Sequence
from typing import Any

from dptune.data.rows import IDS
from dptune.engines.base import Engine
from dptune.engines.promises import CHECKS, STATE, Broken, EngineChecks, in_words
from dptune.errors import InvalidInput


def check_engine(
    engine: Engine[Any],
    *,
    shape: Sequence[int] = (4,),
    classes: int = 3,
    words: int = 10,
    precision: str | None = None,
    state: Sequence[str] = STATE,
    runs: int = 400,
) -> tuple[str, ...]:
    """Run every check on an engine for classes; returns the names of those that it passes.

    The checks train a thousand models or so, of a few steps on 24 made-up rows. Passing them is
    evidence, not a proof, that the engine clips every row and adds the noise that is paid for.

    Args:
        engine: the engine, as `tune` takes it; its class must be registered.
        shape: the shape of one row.
        classes: how many classes the rows have.
        words: where the engine takes token numbers, how many tokens there are.
        precision: of the rows: float32 or float64, by default both; bfloat16.
        state: the names of packed tensors that are needed to go on with a run and are no weights.
        runs: how many runs the noise, and how many the samples, are measured with.

    Raises:
        InvalidInput: the engine breaks a promise; the message names each that it breaks.

    """
    checks = EngineChecks()
    checks.engine, checks.shape, checks.classes = engine, tuple(shape), classes
    checks.words, checks.state, checks.runs = words, tuple(state), runs
    if engine.traits.takes_ids:
        checks.precisions = (IDS,)
    elif precision is not None:
        checks.precisions = (precision,)
    broken = []
    for name in CHECKS:
        try:
            getattr(checks, name)()
        except Exception as problem:  # code of the user's own may raise anything
            kind = "" if isinstance(problem, Broken) else f"{type(problem).__name__}: "
            broken.append(f"{in_words(name)}: {kind}{str(problem).rstrip('.')}")
    if broken:
        listed = "\n".join(f"- {each}." for each in broken)
        raise InvalidInput(
            f"the engine {engine.name} fails {len(broken)} of {len(CHECKS)} checks, so what it "
            f"trains is not what is paid for:\n{listed}"
        )
    return tuple(map(in_words, CHECKS))
