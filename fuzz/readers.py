"""Search for files that a reader fails on, with atheris (pip install atheris):

    python fuzz/readers.py "columns in TOML" -max_total_time=60

The first argument is one of READERS in tests/support/hostile_files.py, the others are atheris' own;
after "--damage" the fuzzer chooses what is wrong with a sound file instead of all its bytes. It
stops at the first error that is none of ours. It is no part of the test suite, which tries a few
damaged files for every reader.
"""

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
with atheris.instrument_imports(include=["dptune"]):
    from support.hostile_files import Reader, damaged, readers


def main() -> None:
    """Fuzz the reader that the command line names."""
    arguments = [argument for argument in sys.argv if argument != "--damage"]
    name = arguments.pop(1)
    with tempfile.TemporaryDirectory() as place:
        reader = readers(Path(place))[name]
        corpus = Path(place) / "corpus"
        corpus.mkdir()
        (corpus / "sound").write_bytes(reader.content)
        once = _damage(reader) if len(arguments) < len(sys.argv) - 1 else reader.attempt
        atheris.Setup([*arguments, str(corpus)], once)
        atheris.Fuzz()


def _damage(reader: Reader):
    def once(chosen: bytes) -> None:
        numbers = atheris.FuzzedDataProvider(chosen)
        kind, place = numbers.ConsumeIntInRange(0, 4), numbers.ConsumeFloatInRange(0.0, 0.999)
        what, byte = numbers.ConsumeInt(2), numbers.ConsumeIntInRange(0, 255)
        reader.attempt(damaged(reader.content, kind, place, what, byte))

    return once


if __name__ == "__main__":
    main()
