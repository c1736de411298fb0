"""All that is wrong, said at once: a line for each problem, which names its columns."""

from dptune.errors import InvalidInput
from dptune.table_files import listed


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
        lines = [f"  {listed(names)}: {problem}" for problem, names in self._columns.items()]
        raise InvalidInput("\n".join([f"{about}:", *lines]))
