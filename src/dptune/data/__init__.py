"""Private rows: where they come from, what is public about them, and who may open them.

Names load on first use: a fingerprint needs none of the packages that train.
"""

from typing import TYPE_CHECKING

from dptune.lazy import lazy_names

if TYPE_CHECKING:
    from dptune.data.data import Data as Data
    from dptune.data.disk import DiskRows as DiskRows
    from dptune.data.disk import write_chunks as write_chunks
    from dptune.data.fingerprint import fingerprint_arrays as fingerprint_arrays
    from dptune.data.fingerprint import fingerprint_file as fingerprint_file
    from dptune.data.origin import Origin as Origin
    from dptune.data.preprocess import Preprocessing as Preprocessing
    from dptune.data.rows import Chunk as Chunk
    from dptune.data.rows import DataFacts as DataFacts
    from dptune.data.rows import MemoryRows as MemoryRows
    from dptune.data.rows import Rows as Rows
    from dptune.data.shift import Shift as Shift
    from dptune.data.sources import load_data as load_data
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "data": ("Data",),
            "fingerprint": ("fingerprint_arrays", "fingerprint_file"),
            "origin": ("Origin",),
            "preprocess": ("Preprocessing",),
            "disk": ("DiskRows", "write_chunks"),
            "rows": ("Chunk", "DataFacts", "MemoryRows", "Rows"),
            "shift": ("Shift",),
            "sources": ("load_data",),
        },
    )
