"""How many rows a pass may take at once, found by trying on made-up rows.

Neither time nor memory of a private batch is ever looked at: what is found depends on the module,
the shape of a row and this machine alone.
"""

from collections.abc import Callable
from pathlib import Path

import torch

from dptune import validate
from dptune.errors import InvalidInput

GPU_SHARE, GPU_MOST_BYTES = 0.8, 2**34
CPU_SHARE, CPU_MOST_BYTES = 0.25, 2**30

# Not getrusage: its peak also counts the process that started this one.
_THIS_PROCESS, _MACHINE = Path("/proc/self/status"), Path("/proc/meminfo")


def rows_at_once(attempt: Callable[[int], None], device: torch.device, most: int) -> int:
    """The largest number of rows that is of use, at most `most`.

    `attempt(n)` runs a pass over n made-up rows. Tried are 1, 2, 4 and so on, until memory ends or
    more would be taken than a share of what is free, or than is of use: larger passes are hardly
    faster. Time is not looked at, which on a busy machine says anything.
    """
    validate.whole(1, most=most)
    allowed = _allowed_bytes(device)
    fitting, rows = 0, 1
    while True:
        taken = _bytes_taken(attempt, rows, device)
        if taken is None or (taken > allowed and fitting):
            break
        fitting = rows
        if taken > allowed or rows == most:
            break
        rows = min(2 * rows, most)
    if not fitting:
        raise InvalidInput(
            f"a pass over one row does not fit into the memory of {device}. Train fewer layers, "
            "train adapters (LoRA), compute in bfloat16, or take shorter rows."
        )
    return fitting


def resident_bytes(field: str) -> int | None:
    """What the system says of this process: VmRSS now, VmHWM at its peak; None where it is
    silent."""
    return _read(_THIS_PROCESS, field)


def _allowed_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return min(GPU_MOST_BYTES, GPU_SHARE * (free + unused))
    free_now = _read(_MACHINE, "MemAvailable")
    return CPU_MOST_BYTES if free_now is None else min(CPU_MOST_BYTES, CPU_SHARE * free_now)


def _bytes_taken(attempt: Callable[[int], None], rows: int, device: torch.device) -> int | None:
    """By how much a pass raises the peak of memory; None if there is not enough.

    On a CPU that is the peak of the process: what it has needed once may be needed again.
    """
    try:
        if device.type != "cuda":
            before = resident_bytes("VmHWM")
            attempt(rows)
            after = resident_bytes("VmHWM")
            return 0 if before is None or after is None else after - before
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        attempt(rows)
        return torch.cuda.max_memory_allocated(device) - held
    except torch.OutOfMemoryError:
        pass  # only once the exception is gone are the tensors of its frames
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def _read(file: Path, field: str) -> int | None:
    if not file.exists():
        return None
    for line in file.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None
