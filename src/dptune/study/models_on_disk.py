"""Models of a run folder: those of trials, the final run as far as it came, a sealed winner."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dptune.engines.base import Engine, Model
from dptune.engines.tensor_files import read_words
from dptune.errors import FolderProblem
from dptune.plain_data import read_json
from dptune.search.space import Setting
from dptune.search.trial import Trial
from dptune.study.run_folder import RunFolder

_FINAL, _WINNER = "models/final.safetensors", "models/winner.safetensors"
# What the module of the beginning gives for made-up rows.
_CODE, _OUTPUTS = "models/code.safetensors", "outputs"


@dataclass(frozen=True)
class ModelsOnDisk:
    """Packed by the engine, each with what it was trained with; `lost` names statistics that the
    rows were prepared without."""

    folder: RunFolder
    engine: Engine[Any]
    lost: frozenset[str]

    def must_run_the_same_code(self, shape: tuple[int, ...]) -> None:
        """Refuse a module of a user's own that computes something else than when the study began:
        weights and steps that were paid for would go on in another module."""
        stored = self.folder.read_tensors(_CODE)
        if stored is not None:
            with self.folder.undamaged(_CODE):
                before = stored[0][_OUTPUTS]
            self.engine.inspection.must_give_as_before(shape, before)
        elif not self.folder.is_finished():  # or a version that kept none has begun it
            outputs = self.engine.inspection.initial_outputs(shape)
            if outputs is not None:
                self.folder.write_tensors(_CODE, {_OUTPUTS: outputs})

    def has_trial(self, number: int) -> bool:
        return (self.folder.path / _trial_file(number)).exists()

    def trial(self, number: int) -> Model:
        tensors, _ = self.folder.read_tensors(_trial_file(number)) or ({}, {})
        with self.folder.undamaged(_trial_file(number)):
            model: Model = self.engine.unpack(tensors)
        return model

    def as_trained(self, trial: Trial) -> Trial:
        """The trial whose model is on disk, as it was trained; the same where there is no model."""
        name = _trial_file(trial.number)
        if not self.has_trial(trial.number):
            return trial
        with self.folder.undamaged(name):
            words = read_words(self.folder.path / name)
            if "trial" in words:
                trial = Trial.from_dict(read_json(words["trial"], "its trial"))
        return trial

    def write_trial(self, trial: Trial, model: Model) -> None:
        self._write(_trial_file(trial.number), model, trial=json.dumps(trial.to_dict()))

    def final(self) -> tuple[Model | None, tuple[int, ...]]:
        """The final run as far as it came, and the segments that are in it."""
        stored = self.folder.read_tensors(_FINAL)
        if stored is None:
            return None, ()
        with self.folder.undamaged(_FINAL):
            segments = tuple(map(int, read_json(stored[1]["legs"], "its segments")))
            model = self.engine.unpack(stored[0])
        return model, segments

    def write_final(self, model: Model, segments: tuple[int, ...], setting: Setting) -> None:
        words = {"legs": json.dumps(segments), "setting": json.dumps(asdict(setting))}
        self._write(_FINAL, model, **words)

    def begun_with(self) -> tuple[Setting | None, bool]:
        """What the segments on disk were trained with, whatever would be chosen now, and whether
        that is known: None without segments, or where a version before 0.2 wrote them."""
        stored = self.folder.read_tensors(_FINAL)
        if stored is None:
            return None, True
        with self.folder.undamaged(_FINAL):
            if "setting" not in stored[1]:
                return None, False
            plain = read_json(stored[1]["setting"], "its setting")
            setting = Setting(**{**plain, "notes": tuple(plain["notes"])})
        return setting, True

    def winner(self) -> tuple[Model, Trial] | None:
        """Of a sealed search, if it has ended."""
        stored = self.folder.read_tensors(_WINNER)
        if stored is None:
            return None
        with self.folder.undamaged(_WINNER):
            model: Model = self.engine.unpack(stored[0])
            trial = Trial.from_dict(read_json(stored[1]["trial"], "its trial"))
        return model, trial

    def write_winner(self, model: Model, trial: Trial) -> None:
        words = json.dumps(trial.to_dict())
        self.folder.write_tensors(_WINNER, self.engine.pack(model), trial=words)

    def must_be_prepared_alike(self, trials: Iterable[int], files: Mapping[str, str]) -> None:
        """Refuse weights that met rows prepared by a statistic that has been removed since; `files`
        are where statistics are kept, by their names."""
        if not self.lost:
            return
        for name in [*map(_trial_file, trials), _FINAL]:
            path = self.folder.path / name
            if not path.exists():
                continue
            with self.folder.undamaged(name):
                words = read_words(path)
                # Versions before 0.2 did not say what was lost.
                before = read_json(words["lost"], "what it lacks") if "lost" in words else self.lost
            for label in sorted(self.lost - set(before)):
                raise FolderProblem(
                    f"{self.folder.path / files[label]} is missing, and {path} was trained on rows "
                    "that it prepared, so it is of no use without it. Put it back from a backup."
                )

    def _write(self, name: str, model: Model, **words: str) -> None:
        lost = json.dumps(sorted(self.lost))
        self.folder.write_tensors(name, self.engine.pack(model), lost=lost, **words)


def _trial_file(number: int) -> str:
    return f"models/trial-{number}.safetensors"
