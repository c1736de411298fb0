"""The cells of whole networks, and which of them a verb measures."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from dptune import validate
from dptune.accounting import Budget
from experiments.lines import Figures
from experiments.modules.sets import FEATURES

DELTA = 1e-5
OURS, RANDOM, FREE = "linear-scaling", "random-search", "free-grid"
GRID = "0.3,1,3,10,30,100"
# What papers report, in percent: (set, epsilon) -> accuracy. Digits: Papernot et al. 2020 and
# Tramèr & Boneh 2021; CIFAR-10: De et al. 2022, about, with larger networks and far more compute.
LITERATURE = {
    ("mnist", 2.93): 98.1,
    ("fashion_mnist", 2.7): 86.1,
    ("cifar10", 1.0): 57.0,
    ("cifar10", 8.0): 81.4,
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What all cells of a verb share. `copies` are those of a row, `directions` those of a
    zeroth-order step."""

    batch: int
    steps: int
    clip_norm: float
    momentum: float
    copies: int = 1
    averaging: str = "none"
    compute: str = "float32"
    directions: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "steps", "copies"):
            validate.whole(1, **{name: getattr(self, name)})
        validate.one_of(("float32", "bfloat16"), compute=self.compute)

    def augmented(self, copies: int, compute: str) -> "Shape":
        """With augmentations, and the moving average of the weights."""
        return replace(self, copies=copies, compute=compute, averaging="ema")


@dataclass(frozen=True, kw_only=True)
class Cell(Shape):
    """One run or study. `noise` or `learning_rate` is set where no search chooses."""

    verb: str
    pictures: str
    network: str
    method: str
    epsilon: float
    delta: float
    seed: int
    noise: float | None = None
    learning_rate: float | None = None
    limit: int | None = None

    @property
    def by_search(self) -> bool:
        """Whether it is a study, which finds its rate itself."""
        return self.noise is None and self.learning_rate is None


def words(cell: Cell, figures: Figures) -> str:
    chosen: Mapping[str, float | None] = {"c": cell.noise, "rate": cell.learning_rate}
    said = [f"{name} {value:.3g}" for name, value in chosen.items() if value is not None]
    parts = [cell.pictures, cell.network, cell.method, f"epsilon {cell.epsilon:g}", *said]
    return f"{', '.join([*parts, f'seed {cell.seed}'])}: {figures['accuracy']:.2f} %"


def usual_epsilons(pictures: str) -> tuple[float, ...]:
    """The budgets of papers, and 1."""
    known = {epsilon for name, epsilon in LITERATURE if name == pictures}
    return tuple(sorted({1.0, *known}))


def study_cells(
    verb: str,
    pictures: str,
    network: str,
    epsilons: Iterable[float],
    repeats: int,
    shape: Shape,
    limit: int | None,
    method: str = OURS,
) -> list[Cell]:
    """Whole studies."""
    validate.whole(1, repeats=repeats)
    return [
        Cell(
            verb=verb,
            pictures=pictures,
            network=network,
            method=method,
            epsilon=Budget(epsilon, DELTA).epsilon,
            delta=DELTA,
            seed=seed,
            limit=limit,
            **asdict(shape),
        )
        for epsilon in epsilons
        for seed in range(repeats)
    ]


def zeroth_order_cells(
    pictures: str,
    epsilons: Iterable[float],
    repeats: int,
    shape: Shape,
    rates: Iterable[float],
    limit: int | None,
) -> list[Cell]:
    """Two paid searches, and runs of the whole budget at every rate of a grid."""
    budgets = list(epsilons)
    common = ("zeroth-order", pictures, "pooled_linear", budgets, repeats, shape, limit)
    paid = [cell for method in (OURS, RANDOM) for cell in study_cells(*common, method)]
    free = study_cells(*common, FREE)
    return paid + [replace(cell, learning_rate=rate) for rate in rates for cell in free]


def law_cells(
    pictures: str,
    epsilons: Iterable[float],
    repeats: int,
    shape: Shape,
    noises: Iterable[float],
    limit: int | None,
) -> list[Cell]:
    """Runs of the whole budget at every noise on weights."""
    network = "small_convolutional"
    if pictures == FEATURES:  # which are no pictures, and few numbers each
        network, limit = "small_perceptron", None
    common = study_cells("law", pictures, network, epsilons, repeats, shape, limit, FREE)
    return [replace(cell, noise=noise) for noise in noises for cell in common]
