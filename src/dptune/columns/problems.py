"""All that is wrong, said at once: a line for each problem, which names its columns."""

from dptune.errors import InvalidInput
from dptune.table_files import listed

_MOST_LINES = 20  # a flattened picture has hundreds of columns
_OF_ONE = ("is ", "has ", "holds ")  # how a problem begins that speaks of one column


class Unfit(InvalidInput):
    """What a column holds does not fit what is declared of it, and what to do; whoever brings new
    rows to a model cannot declare anything any more."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}; {advice}.")
        self.found = found


class Problems:
    """Problems by column; what several columns share is said once."""

    def __init__(self) -> None:
        self._columns: dict[str, list[str]] = {}

    def add(self, column: str, problem: str) -> None:
        columns = self._columns.setdefault(problem, [])
        if column not in columns:
            columns.append(column)

    def raise_any(self, about: str) -> None:
        """Refuse what is wrong with `about`, if anything is."""
        if not self._columns:
            return
        lines = [_line(names, problem) for problem, names in self._columns.items()]
        if len(lines) > _MOST_LINES:
            left = [name for names in [*self._columns.values()][_MOST_LINES:] for name in names]
            lines[_MOST_LINES:] = [_line(left, "has another problem.")]
        raise InvalidInput("\n".join([f"{about}:", *lines]))


def _line(names: list[str], problem: str) -> str:
    each = "each " if len(names) > 1 and problem.startswith(_OF_ONE) else ""
    return f"  {listed(names)}: {each}{problem}"
