"""Rows at once, by trying: on passes that only pretend to take memory."""

from collections.abc import Callable

import pytest
import torch

from dptune.engines.modules import memory
from dptune.errors import InvalidInput

CPU = torch.device("cpu")


class Pretended:
    """A pass whose memory is told by a function of the rows; attempts are written down."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        taken: Callable[[int], int] = lambda rows: 0,
        fits: int = 10**9,
    ) -> None:
        self.tried: list[int] = []
        self._taken, self._fits, self._peak = taken, fits, 2**30
        monkeypatch.setattr(memory, "resident_bytes", lambda field: self._peak)

    def __call__(self, rows: int) -> None:
        self.tried.append(rows)
        if rows > self._fits:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        self._peak = max(self._peak, 2**30 + self._taken(rows))


def test_batches_double_up_to_the_most_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Pretended(monkeypatch)
    assert memory.rows_at_once(attempt, CPU, 100) == 100
    assert attempt.tried == [1, 2, 4, 8, 16, 32, 64, 100]
    assert memory.rows_at_once(attempt, CPU, 1) == 1


def test_it_stops_where_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Pretended(monkeypatch, fits=20)
    assert memory.rows_at_once(attempt, CPU, 1_000) == 16
    assert max(attempt.tried) == 32


def test_it_stops_where_more_would_be_taken_than_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "CPU_MOST_BYTES", 1000)
    attempt = Pretended(monkeypatch, taken=lambda rows: 90 * rows)
    assert memory.rows_at_once(attempt, CPU, 1_000) == 8
    assert max(attempt.tried) == 16
    attempt = Pretended(monkeypatch, taken=lambda rows: 5000 * rows)
    assert memory.rows_at_once(attempt, CPU, 1_000) == 1


def test_a_row_that_does_not_fit_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InvalidInput, match=r"one row does not fit.*LoRA"):
        memory.rows_at_once(Pretended(monkeypatch, fits=0), CPU, 8)


def test_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="most"):
        memory.rows_at_once(Pretended(monkeypatch), CPU, 0)


@pytest.mark.parametrize(("of_use", "rows"), [(10**9, 8), (500, 4)])
def test_a_gpu_lends_four_fifths_of_what_is_free_and_no_more_than_is_of_use(
    monkeypatch: pytest.MonkeyPatch, of_use: int, rows: int
) -> None:
    """What torch holds and does not use is free, too: 1000 here, and a row takes 100."""
    monkeypatch.setattr(memory, "GPU_MOST_BYTES", of_use)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (700, 2000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    attempt = Pretended(monkeypatch)
    monkeypatch.setattr(
        torch.cuda, "max_memory_allocated", lambda device: 200 + 100 * attempt.tried[-1]
    )
    assert memory.rows_at_once(attempt, torch.device("cuda"), 1_000) == rows
    assert attempt.tried[-1] == 2 * rows  # tried, and found too many


def test_the_cache_of_a_gpu_is_emptied_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[bool] = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    for name in ("memory_reserved", "memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda device: 0)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    attempt = Pretended(monkeypatch, fits=4)
    assert memory.rows_at_once(attempt, torch.device("cuda"), 64) == 4
    assert emptied == [True]


def test_the_peak_of_this_process_is_known_or_nothing_is() -> None:
    now, peak = memory.resident_bytes("VmRSS"), memory.resident_bytes("VmHWM")
    if now is None or peak is None:
        pytest.skip("this system does not tell")
    assert 2**20 < now <= peak
    assert memory.resident_bytes("no such field") is None


def test_where_the_system_is_silent_the_most_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Pretended(monkeypatch)
    monkeypatch.setattr(memory, "resident_bytes", lambda field: None)
    assert memory.rows_at_once(attempt, CPU, 64) == 64
