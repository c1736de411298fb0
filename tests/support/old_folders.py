"""Run folders as versions of dptune before 0.2 left them: without digests."""

import json
from pathlib import Path

from safetensors.torch import save_file

from dptune.engines.digests import without_digest
from dptune.engines.tensor_files import read_tensors


def without_digests(folder: Path) -> None:
    """Take the digests out of all files of a run, finished or not."""
    for file in folder.glob("*.json"):
        plain = without_digest(json.loads(file.read_text()))
        plain.pop("files", None)
        file.write_text(json.dumps(plain.get("columns", plain), indent=2) + "\n")
    trials = folder / "trials.jsonl"
    if trials.exists():
        lines = [without_digest(json.loads(line)) for line in trials.read_text().splitlines()]
        trials.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for file in [*folder.glob("*.safetensors"), *folder.glob("models/*")]:
        tensors, words = read_tensors(file)
        new = {"lost", "setting"} | ({"trial"} if file.name.startswith("trial-") else set())
        words = {name: said for name, said in words.items() if name not in new}
        save_file(tensors, file, metadata=words or None)
