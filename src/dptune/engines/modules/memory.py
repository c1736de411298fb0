"""How many rows a pass may take at once, found by trying on made-up rows.

Neither time nor memory of a private batch is ever looked at: what is found depends on the module,
the shape of a row and this machine alone.
"""

from collections.abc import Callable
from functools import partial
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
    allowed = _allowed_peak(device)
    fitting, rows = 0, 1
    while True:
        peak = _peak_bytes(partial(attempt, rows), device)
        if peak is None or (peak > allowed and fitting):
            break
        fitting = rows
        if peak > allowed or rows == most:
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


def _allowed_peak(device: torch.device) -> float:
    """In bytes: what is held now, and a share of what is free."""
    if device.type == "cuda":
        held = torch.cuda.memory_allocated(device)
        free, _ = torch.cuda.mem_get_info(device)
        more = GPU_SHARE * (free + torch.cuda.memory_reserved(device) - held)
        return held + min(GPU_MOST_BYTES, more)
    held = resident_bytes("VmHWM") or 0
    available = _read(_MACHINE, "MemAvailable")
    more = CPU_MOST_BYTES if available is None else min(CPU_MOST_BYTES, CPU_SHARE * available)
    return held + more


def _peak_bytes(attempt: Callable[[], None], device: torch.device) -> int | None:
    """The peak of memory up to the end of a pass; None if there is not enough.

    On a CPU that is the peak of the process: what it has needed once may be needed again.
    """
    try:
        if device.type != "cuda":
            attempt()
            return resident_bytes("VmHWM") or 0
        torch.cuda.reset_peak_memory_stats(device)
        attempt()
        return torch.cuda.max_memory_allocated(device)
    except torch.cuda.OutOfMemoryError:
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
