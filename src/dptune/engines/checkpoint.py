"""How far a long run is, on disk, so that one that was killed goes on from there.

What is released is what is on disk. A run of many steps is paid as a whole, so the state after some
of them, and the steps that follow it with fresh noise, are the run that was paid, whatever was
computed meanwhile and lost with the memory of a process. So a checkpoint holds what follows from
noisy sums (weights, an optimizer's moments, an average), never a sample, a stream of noise or the
state of a generator: with noise of the operating system there is no position to go back to, and
with a `noise_seed` the number of the step is the position.

Its number of steps decides how many more are taken, so a damaged one could take more than were
paid for: tag, steps and tensors carry a SHA-256, which is checked on every read.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from torch import Tensor

from dptune import whole_files
from dptune.engines import tensor_files
from dptune.errors import FolderProblem, InvalidInput
from dptune.lock import FileLock

_SECONDS_BETWEEN_WORDS = 1.0
_SHARE_OF_TIME = 0.05  # that saving may take, where tensors are large


@dataclass(eq=False)
class Checkpoint:
    """Where one run is kept while it goes on.

    An engine with `checkpoints` loads before its first step, and after every step says how far it
    is and saves where that is due; after the last step it saves in any case, so that a finished run
    which is continued takes no further step.

    Attributes:
        path: its file.
        tag: which run of which plan it is; a file with another tag is never continued.
        seconds: how long a kill may set a run back.
        told: hears how many steps are done, about once a second.

    """

    path: Path
    tag: str
    seconds: float = 60.0
    told: Callable[[int], None] | None = None
    _saved: float = field(default=0.0, init=False, repr=False)  # when, or when the run began here
    _saving: float = field(default=0.0, init=False, repr=False)  # how long it took, in seconds
    _spoke: float = field(default=0.0, init=False, repr=False)

    def load(self) -> tuple[dict[str, Tensor], int] | None:
        """What was saved, on the CPU, and how many steps are in it; None where there is no step."""
        # What a kill left half written belongs to steps that are about to be taken anew.
        whole_files.draft_of(self.path).unlink(missing_ok=True)
        self._saved = self._spoke = monotonic()
        steps = self.steps()
        if not steps:
            return None
        with tensor_files.undamaged(self.path):
            tensors, _ = tensor_files.read_tensors(self.path)
        return tensors, steps

    def save(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        """Replace the file whole: what a run needs to go on after so many steps."""
        began = monotonic()
        words = {"tag": self.tag, "steps": str(steps)}
        try:
            content = tensor_files.tensors_as_bytes(tensors, words)
            whole_files.write_whole(self.path, content, whole_files.PRIVATE)
        except OSError as error:
            raise FolderProblem(
                f"{self.path} could not be written: {error.strerror}. What was kept before is "
                "still there."
            ) from None
        self._saved = monotonic()
        self._saving = self._saved - began

    def due(self) -> bool:
        """Whether it is time to save: `seconds` have passed in this process since it was last done,
        or more where saving takes long."""
        return monotonic() - self._saved >= max(self.seconds, self._saving / _SHARE_OF_TIME)

    def tell(self, steps: int) -> None:
        """Say how far the run is, which is public; reported once a second at most."""
        now = monotonic()
        if self.told is None or now - self._spoke < _SECONDS_BETWEEN_WORDS:
            return
        self._spoke = now
        self.told(steps)

    def steps(self) -> int | None:
        """How many steps are in the file, none where its run is only about to begin; None where
        there is no file."""
        words = _words(self.path)
        if words is None:
            return None
        if words["tag"] != self.tag:
            raise FolderProblem(
                f"{self.path} is kept of {words['tag']}; what is to go on here is {self.tag}. Put "
                "the right file back, go on with the version of dptune that began, or remove the "
                "file: what was begun is then lost, though paid for."
            )
        return int(words["steps"])

    def remove(self) -> None:
        """Its run has ended."""
        for file in (self.path, whole_files.draft_of(self.path)):
            file.unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """For one process at a time: one whose parent was killed may still be at this run."""
        try:
            lock = FileLock.take(self.path.with_name(f".{self.path.name}.lock"))
        except OSError as error:
            raise FolderProblem(
                f"{self.path} cannot be kept from others: {error.strerror or error}. See to it "
                "that you may write there."
            ) from None
        if lock is None:
            raise InvalidInput(
                f"another process is at the run that {self.path} is kept of; wait until that one "
                "has ended, and go on then with all that it did."
            )
        try:
            yield
        finally:
            lock.release()


def steps_kept(path: Path) -> int | None:
    """How many steps of whatever run are in a file; None where there is none."""
    words = _words(path)
    return None if words is None else int(words["steps"])


def _words(path: Path) -> dict[str, str] | None:
    """What a checkpoint says about itself."""
    if not path.exists():
        return None
    with tensor_files.undamaged(path):
        words = tensor_files.read_words(path)
        if int(words["steps"]) < 0 or not words["tag"]:
            raise ValueError("no run is so long")
        if tensor_files.has_digest(words):
            return words
    # With a wrong number of steps, more of them would be taken than were paid for.
    raise FolderProblem(
        f"{path} was written by a version of dptune that kept no SHA-256 with it, so whether its "
        "number of steps is right cannot be checked. Go on with that version, or remove the file: "
        "what was begun is then lost, though paid for."
    )
