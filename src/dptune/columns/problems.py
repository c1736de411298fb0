"""Report all problems of columns together: one line for each problem, with its columns."""

from dptune.errors import InvalidInput
from dptune.table_files import listed

_MOST_LINES = 20  # a flattened picture has hundreds of columns
_SINGULAR = ("is ", "has ", "holds ", "appears ")  # the verbs of a problem of one column


class Unfit(InvalidInput):
    """A column does not fit its declaration. `found` and `advice` are kept apart, because new rows
    for a trained model need other advice."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}; {advice}.")
        self.found = found


class Problems:
    """Collects problems by column; columns with the same problem share a line."""

    def __init__(self) -> None:
        self._columns: dict[str, list[str]] = {}

    def add(self, column: str, problem: str) -> None:
        columns = self._columns.setdefault(problem, [])
        if column not in columns:
            columns.append(column)

    def raise_any(self, about: str) -> None:
        """Raise all problems of `about`, if there are any."""
        if not self._columns:
            return
        lines = [_line(names, problem) for problem, names in self._columns.items()]
        if len(lines) > _MOST_LINES:
            left = [name for names in [*self._columns.values()][_MOST_LINES:] for name in names]
            lines[_MOST_LINES:] = [_line(left, "has another problem.")]
        raise InvalidInput("\n".join([f"{about}:", *lines]))


def _line(names: list[str], problem: str) -> str:
    each = "each " if len(names) > 1 and problem.startswith(_SINGULAR) else ""
    return f"  {listed(names)}: {each}{problem}"
