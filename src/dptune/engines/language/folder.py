"""A language model that was trained, as a Hugging Face folder: transformers (and peft, for
adapters) open it with from_pretrained, without dptune."""

import inspect
import json
from collections.abc import Sequence
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from dptune.engines.language.pretrained import EXTRA, config_of, for_training, place_of
from dptune.engines.language.reader import MeanClassifier, Reader, Spans, Words
from dptune.engines.modules.lora import LoRA
from dptune.engines.modules.module_engine import ModuleEngine
from dptune.engines.modules.module_model import ModuleModel
from dptune.errors import InvalidInput
from dptune.hub import quiet, transformers_package
from dptune.plain_data import read_json
from dptune.printable import markdown
from dptune.texts.tokenizer import load_tokenizer

HEAD = "head.safetensors"
_ADAPTER = "base_model.model."  # how peft's names begin


def save_pretrained(
    engine: ModuleEngine,
    model: ModuleModel,
    folder: str | Path,
    *,
    tokenizer: str,
    card: str,
    classes: Sequence[Any] = (),
) -> Path:
    """Write the model, or its adapters, with its tokenizer and a card that begins with how to open
    it and goes on with `card`; returns the folder.

    Args:
        engine: the one that trained it, with a factory hf:...
        model: what it trained.
        folder: where to; it is made if it is not there.
        tokenizer: where that lies: a folder, or NAME@REVISION on the hub.
        card: the model's own, with its guarantee.
        classes: in the order of the model's outputs, where it has any.

    """
    reader = model.module
    if not engine.traits.pretrained or not isinstance(reader, Reader):
        raise InvalidInput(
            f"a Hugging Face folder is written of models that came from one, and {engine.factory} "
            "makes a module of its own; keep the run's folder, which holds the weights."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    labels = [str(one) for one in classes]
    if isinstance(engine, LoRA):
        _save_adapters(engine, reader, folder)
    else:
        with quiet(transformers_package(EXTRA)):
            reader.model.save_pretrained(folder)
        _mend_config(engine, folder / "config.json", labels)
    if isinstance(reader, MeanClassifier):
        save_file(
            {name: _plain(one) for name, one in reader.head.state_dict().items()}, folder / HEAD
        )
    with quiet(transformers_package(EXTRA)):
        _as_in_training(load_tokenizer(tokenizer), model, reader).save_pretrained(folder)
    page = folder / "README.md"
    page.write_text(_card(engine, reader, card, labels), encoding="utf-8")
    for file in folder.glob("*.safetensors"):  # which safetensors writes for the owner alone
        file.chmod(page.stat().st_mode)
    return folder


def _as_in_training(tokenizer: Any, model: ModuleModel, reader: Reader) -> Any:
    """One that cuts texts to as many words, and pads by the same mark where it knew none."""
    mended = deepcopy(tokenizer)  # others read with the one that was loaded
    mended.model_max_length = model.shape[-1]
    padding = reader.traits.padding
    # A word that is no mark yet would be cut otherwise as one.
    if mended.pad_token is None and padding in mended.all_special_ids:
        mended.pad_token = mended.convert_ids_to_tokens(padding)
    return mended


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous()


def _mend_config(engine: ModuleEngine, file: Path, labels: list[str]) -> None:
    """What was changed for training is put back, and outputs get their names."""
    told, original = read_json(file.read_bytes(), str(file)), config_of(place_of(engine.factory))
    for name in for_training(original):
        if hasattr(original, name):
            told[name] = getattr(original, name)
    if labels:
        told["id2label"] = dict(enumerate(labels))
        told["label2id"] = {label: number for number, label in enumerate(labels)}
    file.write_text(json.dumps(told, indent=2, sort_keys=True) + "\n")


def _save_adapters(engine: LoRA, reader: Reader, folder: Path) -> None:
    place, state = place_of(engine.factory), reader.model.state_dict()
    trained = [n.removeprefix("model.") for n in engine.names(reader) if n.startswith("model.")]
    beside = [name for name in trained if ".lora_" not in name]
    if any(".base_layer." in name for name in beside):
        raise InvalidInput(
            "peft has no place for a layer that has adapters and is trained itself; leave it out "
            f"of trained={engine.trained!r}, or of the layers that get adapters."
        )
    # A head is kept whole, as peft itself does; of anything else, layers.
    heads = {name.partition(".")[0] for name, _ in reader.model.named_children()}
    heads.discard(reader.model.base_model_prefix)
    tops = {name: name.partition(".")[0] for name in beside}
    owners = sorted({top if top in heads else n.rpartition(".")[0] for n, top in tops.items()})
    whole = [name for name in state if any(name.startswith(f"{one}.") for one in owners)]
    kept = [name for name in trained if ".lora_" in name] + whole
    tensors = {_ADAPTER + name.replace(".default.", "."): _plain(state[name]) for name in kept}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = copy(reader.model.peft_config["default"])
    config.base_model_name_or_path, config.revision = place.where, place.revision or None
    config.task_type = _task(reader)[1]
    config.modules_to_save = owners or None
    config.inference_mode = True
    config.save_pretrained(folder)


def _task(reader: Reader) -> tuple[str, str]:
    """Which class of transformers opens it, and what peft calls that."""
    if isinstance(reader, MeanClassifier):
        return "AutoModel", "FEATURE_EXTRACTION"
    if isinstance(reader, Words):
        return "AutoModelForCausalLM", "CAUSAL_LM"
    if isinstance(reader, Spans):
        return "AutoModelForQuestionAnswering", "QUESTION_ANS"
    return "AutoModelForSequenceClassification", "SEQ_CLS"


def _other_names(reader: Reader) -> list[str]:
    """What from_pretrained needs to know where a class has another name for its base than the rest
    of its family, as of Llamas the one that finds answers has."""
    own, usual = reader.model.base_model_prefix, type(reader.model.base_model).base_model_prefix
    return [] if own == usual else [f'key_mapping={{"^{usual}.": "{own}."}}']


def _card(engine: ModuleEngine, reader: Reader, card: str, labels: list[str]) -> str:
    place, adapters = place_of(engine.factory), isinstance(engine, LoRA)
    name = Path(place.where).resolve().name if place.is_folder else place.where
    about = [
        "tags:",
        "- differential-privacy",
        f"library_name: {'peft' if adapters else 'transformers'}",
    ]
    if not place.is_folder:
        about.append(f"base_model: {place.where}")
    used = _recipe(engine, reader, labels)
    lines = ["---", *about, "---", "", f"# {markdown(name)}, trained with differential privacy", ""]
    lines += ["## How to open it", "", "```python", *used, "```", ""]
    if adapters and place.is_folder:
        lines += [
            f"The base was read from a folder of this machine, `{place.where}`: before you publish "
            "this one, write the base's name on the hub into adapter_config.json and into the "
            "lines above.",
            "",
        ]
    return "\n".join([*lines, card.strip(), ""])


def _recipe(engine: ModuleEngine, reader: Reader, labels: list[str]) -> list[str]:
    """The lines of Python that open the folder and read a text."""
    kind = _task(reader)[0]
    used = [f"from transformers import {kind}, AutoTokenizer"]
    if isinstance(engine, LoRA):
        used.append("from peft import PeftModel")
    if labels:
        used.append(f"classes = {labels!r}  # of the logits, in this order")
    used.append('folder = "."  # where this page lies')
    if isinstance(engine, LoRA):
        used += [
            # In whatever precision its files are, adapters and heads are in this.
            f"base = {kind}.from_pretrained({', '.join(_of_base(engine, reader, labels))}).float()",
            "model = PeftModel.from_pretrained(base, folder).eval()",
        ]
    else:
        given = ", ".join(["folder", *_without_pooler(reader)])
        used += [f"model = {kind}.from_pretrained({given}).eval()"]
    used += ["tokenizer = AutoTokenizer.from_pretrained(folder)"]
    texts = '["a text"], truncation=True'
    if isinstance(reader, Spans):
        texts = '["a question"], ["a text"], truncation="only_second"'
    words = f'tokenizer({texts}, padding=True, return_tensors="pt")'
    said = ["print(classes[int(logits[0].argmax())])"] if labels else []
    if kind == "AutoModelForSequenceClassification":
        return [*used, f"logits = model(**{words}).logits", *said]
    if not isinstance(reader, MeanClassifier):
        return [*used, f"found = model(**{words})"]
    return [
        *used,
        "from safetensors.torch import load_file",
        f'head = load_file(f"{{folder}}/{HEAD}")',
        f"words = {words}",
        "states, seen = model(**words).last_hidden_state, words.attention_mask[..., None]",
        "means = (states * seen).sum(1) / seen.sum(1)",
        'logits = means @ head["weight"].T + head["bias"]',
        *said,
    ]


def _without_pooler(reader: Reader) -> list[str]:
    """Of a model of sentences, which looks at means, it is not kept; transformers would draw one
    and report that."""
    known = inspect.signature(type(reader.model)).parameters
    has_one = isinstance(reader, MeanClassifier) and "add_pooling_layer" in known
    return ["add_pooling_layer=False"] if has_one else []


def _of_base(engine: LoRA, reader: Reader, labels: list[str]) -> list[str]:
    """What from_pretrained is given for the model that adapters lie beside."""
    place = place_of(engine.factory)
    given = [repr(place.where)]
    given += [f"revision={place.revision!r}"] if place.revision else []
    given += _other_names(reader)
    if _task(reader)[1] == "SEQ_CLS":
        given += [f"num_labels={engine.outputs}", f"pad_token_id={reader.traits.padding}"]
        if labels:  # adapters hold no names of classes
            given += [
                "id2label=dict(enumerate(classes))",
                "label2id={name: number for number, name in enumerate(classes)}",
            ]
    return given
