"""The options that `tune`, `tune-pictures` and `tune-texts` share."""

from dataclasses import dataclass
from typing import Annotated, Any

from dptune.cli.parameters import AsJson, Balance, Device, Verbose, flag, in_words, option

DATA, PRIVACY, TRAINING = "Data", "Privacy", "Training"  # groups of the help


def _methods(incomplete: str) -> list[str]:
    from dptune.search.methods import METHODS

    return [name for name in METHODS if name.startswith(incomplete)]


def _scores(incomplete: str) -> list[str]:
    from dptune.study.config import SCORES

    return [name for name in SCORES if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What the user asked of a study, whatever it is about; None stands for the default."""

    epsilon: Annotated[float | None, option("Total epsilon. Default: 1.")] = None
    test: Annotated[
        str | None,
        option(
            "Public test data to report the accuracy on. To use the test part of --data, "
            "name --data again.",
            metavar="DATA",
        ),
    ] = None
    out: Annotated[
        str | None,
        option("A new folder for the run. Default: runs/NAME-1, or the next.", metavar="FOLDER"),
    ] = None
    dry_run: Annotated[bool, flag("Show prices and the promise; spend nothing.", "--dry-run")] = (
        False
    )
    verbose: Verbose = False
    as_json: AsJson = False
    classes: Annotated[
        str | None,
        option(
            "All possible classes, separated by commas; or paid, to estimate privately which "
            "names are frequent; or public, where all labels that occur are public. Default: paid "
            "for texts, public for numbers.",
            metavar="NAMES",
            group=DATA,
        ),
    ] = None
    public: Annotated[
        str | None, option("Public data, to compare trials on.", metavar="DATA", group=DATA)
    ] = None
    shift: Annotated[
        list[str] | None,
        option("Public test data of another origin. Repeatable.", metavar="DATA", group=DATA),
    ] = None
    delta: Annotated[
        float | None, option("Total delta. Default: 1 / (10 x number of rows).", group=PRIVACY)
    ] = None
    ledger: Annotated[
        str | None,
        option(
            "The ledger to pay from. Default: a new one in the run's folder.",
            metavar="LEDGER",
            group=PRIVACY,
        ),
    ] = None
    reuse: Annotated[
        str | None,
        option(
            "Reuse the search of this run, paid from the same ledger; its price is added.",
            metavar="FOLDER",
            group=PRIVACY,
        ),
    ] = None
    allow_large_epsilon: Annotated[
        bool, flag("Accept an epsilon above 20.", "--allow-large-epsilon", group=PRIVACY)
    ] = False
    allow_large_delta: Annotated[
        bool, flag("Accept a delta above 1 / number of rows.", "--allow-large-delta", group=PRIVACY)
    ] = False
    engine: Annotated[
        str | None,
        option(
            "The model: linear; or module:FILE.py:NAME, a function of yours that makes a "
            "PyTorch module; or lora: (adapters) or zeroth-order: (no gradients) and the same. "
            "Default: linear.",
            metavar="ENGINE",
            group=TRAINING,
        ),
    ] = None
    method: Annotated[
        str | None,
        option(
            "The search: linear-scaling, unit-noise, paper-line, random-search, grid-search, "
            "private-selection, subset, hypo, wosm or one-step. Default: linear-scaling.",
            metavar="METHOD",
            group=TRAINING,
            autocompletion=_methods,
        ),
    ] = None
    score: Annotated[
        str | None,
        option(
            "How trials are compared: by noisy counts from the budget (noisy), on --public "
            "data (public), on held-out private rows (held-out), or by exact counts that the "
            "guarantee does not cover (unpaid). Default: noisy.",
            metavar="SCORE",
            group=TRAINING,
            autocompletion=_scores,
        ),
    ] = None
    center: Annotated[
        str | None,
        option(
            "Subtract a private mean: auto, no, or its share of mu^2. Default: auto.",
            metavar="SHARE",
            group=TRAINING,
        ),
    ] = None
    whiten: Annotated[
        str | None,
        option(
            "Whiten by a private second moment: auto, no, or its share of mu^2. Default: auto.",
            metavar="SHARE",
            group=TRAINING,
        ),
    ] = None
    balance: Annotated[
        Balance | None,
        option(
            "Weigh rows equally (none) or classes equally (classes). Default: none.",
            metavar="BALANCE",
            group=TRAINING,
        ),
    ] = None
    device: Annotated[
        Device | None,
        option(
            f"Where to train: {in_words(Device)}. Default: cpu.", metavar="DEVICE", group=TRAINING
        ),
    ] = None
    seed: Annotated[
        int | None, option("Seed of public choices; noise is never seeded.", group=TRAINING)
    ] = None
    config: Annotated[
        str | None,
        option(
            "A TOML file like a run's run.toml, or a part of it. Options override it.",
            metavar="FILE",
            group=TRAINING,
        ),
    ] = None

    @property
    def where(self) -> str:
        """The device that makes features and trains."""
        return (self.device or Device.cpu).value

    def sections(self) -> dict[str, dict[str, Any]]:
        """The options as the sections of a --config file."""
        from dptune.cli.options import parse_classes, parse_engine, parse_share

        return {
            "data": {
                "test": self.test,
                "public": self.public,
                "shifts": self.shift,
                "classes": parse_classes(self.classes),
            },
            "engine": parse_engine(self.engine),
            "budget": {"epsilon": self.epsilon, "delta": self.delta},
            "search": {"method": self.method},
            "score": {"kind": self.score},
            "preparation": {
                "center_share": parse_share(self.center, "--center"),
                "whiten_share": parse_share(self.whiten, "--whiten"),
            },
            "run": {
                "device": self.device and self.device.value,
                "seed": self.seed,
                "balance": self.balance and self.balance.value,
                "ledger": self.ledger,
                "reuse": self.reuse,
                "allow_large_epsilon": self.allow_large_epsilon or None,
                "allow_large_delta": self.allow_large_delta or None,
            },
        }
