"""The contract of a step of preparation, and what steps pass on."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, ClassVar

from numpy.typing import NDArray

from dptune.accounting import Budget
from dptune.columns.encoding import Encoding
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import Encode, RowMap
from dptune.data.rows import DataFacts
from dptune.preparation.options import Preparation
from dptune.prior import signal
from dptune.privacy import Event
from dptune.validate import Normal

DONE, LOST = "done", "lost"  # results that several steps have


@dataclass(frozen=True)
class EngineFacts:
    """What preparation must know of the engine.

    Attributes:
        trains: what it trains, in words.
        linear_in_rows: whether steps that are measured for linear models are of use to it.
        wants_constant: whether it has no bias of its own.
        averages: whether it averages iterates by default, for rows of so many features.

    """

    trains: str
    linear_in_rows: bool
    wants_constant: bool
    averages: Callable[[int], bool]


@dataclass(frozen=True)
class Case:
    """All that a decision may depend on: public facts, made once for a study.

    Attributes:
        facts: of the data.
        columns: how many features a row has at this step, at most.
        budget: of the whole study.
        slack: failure probability of one count with a threshold.
        options: what the user asked for.
        alone: whether the search is priced well only if nothing else is paid for.
        engine: what preparation knows of it.

    """

    facts: DataFacts
    columns: int
    budget: Budget
    slack: float
    options: Preparation
    alone: bool
    engine: EngineFacts

    @cached_property
    def straight(self) -> int:
        """How many features a row has without polynomial ones."""
        return self.facts.straight_columns

    @property
    def rows(self) -> int:
        return self.facts.count

    @property
    def has_classes(self) -> bool:
        return self.facts.has_classes

    @property
    def signal(self) -> float:
        """How much there is for every weight of the model: mu times rows."""
        return self.signal_of(self.columns)

    def signal_of(self, columns: int) -> float:
        """The same where rows have so many features."""
        return signal(self.budget.mu, self.rows, columns, self.facts.outputs)

    def noise(self, share: float) -> float:
        """On one statistic for this share of mu^2."""
        return 1 / math.sqrt(share * self.budget.mu_squared())

    def noise_of_counts(self, counts: int, share: float) -> float:
        """On each of so many counts that together cost this share of mu^2."""
        return math.sqrt(counts / (share * self.budget.mu_squared()))

    @cached_property
    def kept(self) -> dict[str, object]:
        """The columns of a table that are not dropped, as declared."""
        named = self.facts.named
        return {} if named is None else {name: named.declared[name] for name in named.kept}


@dataclass(frozen=True)
class Reason:
    """Why a step is left out: a key of `words`, and what to fill in."""

    key: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a step will do.

    Attributes:
        share: of mu^2, for its statistic.
        event: what that is, for the ledger; None where nothing is measured.
        skipped: why the step is left out; None where it is not.
        features: by how many features a row becomes wider, at most, as later decisions count it.
        planned: which of the step's sentences says what is planned, and what to fill in.
        also: sentences to say beside it.

    """

    share: float = 0.0
    event: Event | None = None
    skipped: Reason | None = None
    features: int = 0
    planned: Reason = field(default_factory=lambda: Reason(DONE))
    also: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of a step: which of its sentences says so, what to fill in, and what to say
    beside it."""

    result: str = DONE
    values: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class State:
    """What is known while rows are prepared.

    Attributes:
        maps: what is done to rows so far.
        curvature: the largest eigenvalue of their second moment, at most.
        outcomes: by the names of steps.
        lost: names of steps whose statistic was paid for and is lost.

    """

    maps: tuple[RowMap, ...] = ()
    curvature: float = 1.0
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(self.maps)

    @property
    def encoding(self) -> Encoding | None:
        return self.preprocessing.encoding

    def has(self, kind: type[RowMap]) -> bool:
        """Whether rows meet such a map."""
        return any(isinstance(each, kind) for each in self.maps)

    def then(self, *maps: RowMap) -> "State":
        """With these maps after all others."""
        return replace(self, maps=(*self.maps, *maps))

    def with_encoding(self, encoding: Encoding) -> "State":
        """The same where columns are encoded otherwise."""
        return replace(self, maps=(Encode(encoding), *self.maps[1:]))

    def columns(self, case: Case) -> int:
        """How many features a row has now."""
        return self.preprocessing.columns(case.straight)


@dataclass(frozen=True)
class PrivateRows:
    """All private rows, for what was paid for.

    Attributes:
        tables: the rows after these maps, in one table or several; as they are coded without any.
        vocabularies: what codes of categories stand for, by column.
        normal: fresh standard normal numbers of a shape.

    """

    tables: Callable[[Sequence[RowMap] | None], Iterable[NDArray[Any]]]
    vocabularies: Callable[[], Mapping[str, Sequence[str]]]
    normal: Normal


class Step(ABC):
    """One step of preparation.

    Attributes:
        name: of the payment in ledgers, of the statistic, and in `words`.
        file: where a run folder keeps the statistic; columns' statistics are JSON.

    """

    name: ClassVar[str]
    file: ClassVar[str] = ""

    @abstractmethod
    def decide(self, case: Case, earlier: Mapping[str, Any]) -> Decision:
        """What to do, from public numbers alone; `earlier` decisions by the names of steps."""

    def must_be_of_use(self, case: Case, earlier: Mapping[str, Any]) -> None:
        """Refuse options that the user named and that do nothing."""
        return

    def options(self, decision: Any) -> dict[str, Any]:
        """What the decision comes to, as options that decide the same again."""
        return {}

    def measure(self, case: Case, decision: Any, state: State, rows: PrivateRows) -> Any:
        """The statistic, with its noise, as `decision.event` pays for it."""
        raise NotImplementedError

    def shape(self, case: Case, decision: Any, state: State) -> tuple[int, ...]:
        """Of the statistic, where it is an array."""
        raise NotImplementedError

    def read(self, case: Case, decision: Any, state: State, stored: Any) -> Any:
        """The statistic that a file holds; a ValueError where it cannot be this one."""
        if stored.shape != self.shape(case, decision, state):
            wanted = self.shape(case, decision, state)
            raise ValueError(f"its shape is {stored.shape} instead of {wanted}")
        return stored

    @abstractmethod
    def apply(
        self, case: Case, decision: Any, statistic: Any, state: State
    ) -> tuple[State, Outcome]:
        """The state with the maps of this step. A statistic that is lost adds none, so this is not
        called then."""

    @property
    def stem(self) -> str:
        """What its statistic is called inside its file."""
        return PurePath(self.file).stem
