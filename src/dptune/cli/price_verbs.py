"""Verbs that price and split, and touch neither data nor ledger."""

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from dptune.cli import screen
from dptune.cli.parameters import AsJson, Delta, Epsilon, SamplingRate, Steps, option
from dptune.errors import InvalidInput
from dptune.rounding import cost

if TYPE_CHECKING:
    from dptune.accounting import Sweep
    from dptune.privacy import FullBatchRun, SampledRun


class Score(StrEnum):
    noisy = "noisy"
    public = "public"


def account(
    delta: Delta,
    steps: Steps,
    epsilon: Annotated[
        float | None, option("Ask for the noise that this epsilon needs.", "--epsilon")
    ] = None,
    noise_multiplier: Annotated[
        float | None, option("Ask for the epsilon that this noise gives.", "--noise-multiplier")
    ] = None,
    sampling_rate: SamplingRate = None,
    as_json: AsJson = False,
) -> None:
    """Price one training run: noise from epsilon, or epsilon from noise.

    Example: dptune account --epsilon 1 --delta 1e-5 --steps 100
    """
    from dptune import accounting
    from dptune.privacy import Price

    if (epsilon is None) == (noise_multiplier is None):
        raise InvalidInput(
            "give either --epsilon, to learn the noise, or --noise-multiplier, to learn the "
            f"epsilon; got {'neither' if epsilon is None else 'both'}."
        )
    run: FullBatchRun | SampledRun
    if epsilon is None:
        run = training_run(steps, noise_multiplier or 0.0, sampling_rate)
    elif sampling_rate is None:
        run = accounting.calibrate_full_batch(mu=accounting.Budget(epsilon, delta).mu, steps=steps)
    else:
        run = accounting.calibrate_direct(
            epsilon=epsilon, delta=delta, steps=steps, sampling_rate=sampling_rate
        )
    _must_protect_something(run)
    guarantee = accounting.guarantee(
        [run],
        delta,
        adaptive=False,
        covers_search=False,
        covers_selection=False,
        releases=("every noisy sum of this run, and so its model",),
        public_facts=("the number of rows",),
        caveats=("prices this run alone; other runs on the same rows, trials included, add to it",),
    )
    # A ledger counts all of the failure probability that it sets aside, whichever run uses it.
    charged = Price(guarantee.mu**2, accounting.slack_set_aside(delta))
    plain = {
        "steps": steps,
        "sampling_rate": sampling_rate,
        "noise_multiplier": run.noise_multiplier,
        "epsilon": guarantee.epsilon,
        "delta": delta,
        "mu": guarantee.mu,
        "slack": guarantee.slack,
        "ledger_epsilon": accounting.epsilon(charged, delta),
        "rdp_epsilon": accounting.rdp_epsilon([run], delta),
        "guarantee": guarantee.to_dict(),
    }
    screen.show(as_json, plain, lambda: screen.show_account(plain, guarantee))
    _warn_of_large_epsilon(guarantee.epsilon)


def plan(
    epsilon: Epsilon,
    delta: Delta,
    sweep: Annotated[
        list[str] | None,
        option("That many trials at that epsilon each. Repeatable.", metavar="TRIALS@EPSILON"),
    ] = None,
    score: Annotated[
        Score,
        option(
            "How trials are compared: by noisy counts from the budget (noisy) or on public rows "
            "(public).",
            metavar="SCORE",
        ),
    ] = Score.noisy,
    score_share: Annotated[
        float | None,
        option("Share of the budget (of mu squared) for noisy scores. Default: 0.005."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Split a budget: sweeps of cheap trials, their scores, and what is left for the final run.

    Touches no data and spends nothing.

    Example: dptune plan --epsilon 1 --delta 1e-5 --sweep 3@0.1 --sweep 3@0.2
    """
    from dptune.accounting import Budget
    from dptune.accounting.split import DEFAULT_SCORE_SHARE, split_budget

    sweeps = [_sweep(text) for text in sweep or []]
    if score is Score.public and score_share is not None:
        raise InvalidInput(
            "--score public has no price, so it takes no --score-share; leave one of them out."
        )
    share = DEFAULT_SCORE_SHARE if score_share is None else score_share
    split = split_budget(Budget(epsilon, delta), sweeps, score=score.value, score_share=share)
    screen.show(as_json, split.to_dict(), lambda: screen.show_split(split))
    _warn_of_large_epsilon(epsilon)


def _must_protect_something(run: "FullBatchRun | SampledRun") -> None:
    from dptune.gdp import LARGEST_MU
    from dptune.privacy import FullBatchRun

    if isinstance(run, FullBatchRun) and math.sqrt(run.steps) > LARGEST_MU * run.noise_multiplier:
        raise InvalidInput(
            f"a noise multiplier of {run.noise_multiplier:g} over {run.steps:,} steps protects "
            f"nothing: epsilon would be too large to be computed. Give one above "
            f"{cost(math.sqrt(run.steps) / LARGEST_MU)}; 1 or more is usual."
        )


def _warn_of_large_epsilon(epsilon: float) -> None:
    from dptune.accounting.guarantees import LARGEST_MEANINGFUL_EPSILON

    if epsilon > LARGEST_MEANINGFUL_EPSILON:
        screen.warn(
            f"dptune tune refuses an epsilon above {LARGEST_MEANINGFUL_EPSILON:g} unless it is "
            "given --allow-large-epsilon"
        )


def training_run(
    steps: int, noise_multiplier: float, sampling_rate: float | None
) -> "FullBatchRun | SampledRun":
    """One run as an event: full batch where there is no sampling rate."""
    from dptune.privacy import FullBatchRun, SampledRun

    if sampling_rate is None:
        return FullBatchRun(steps=steps, noise_multiplier=noise_multiplier)
    return SampledRun(steps=steps, noise_multiplier=noise_multiplier, sampling_rate=sampling_rate)


def _sweep(text: str) -> "Sweep":
    from dptune.accounting import Sweep

    trials, _, epsilon = text.partition("@")
    try:
        return Sweep(int(trials), float(epsilon))
    except (ValueError, InvalidInput) as error:
        detail = f" ({error})" if isinstance(error, InvalidInput) else ""
        raise InvalidInput(
            f"--sweep takes TRIALS@EPSILON, for example 3@0.1; got {text!r}{detail}."
        ) from None
