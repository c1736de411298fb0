"""`hf:NAME_OR_FOLDER[@REVISION]` as a factory: a pretrained language model with the head that a
loss needs. No code of a repository is run, and weights are read from safetensors files only."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dptune.engines.language.reader import (
    Classifier,
    ClassifierInside,
    MeanClassifier,
    MeanClassifierInside,
    Reader,
    Spans,
    Traits,
    Words,
)
from dptune.engines.modules.mending import untie
from dptune.errors import InvalidInput
from dptune.hub import ModelPlace, quiet, transformers_package
from dptune.own_code import PRETRAINED, pretrained_name
from dptune.plain_data import read_json
from dptune.texts.inputs import tells_texts_apart
from dptune.texts.tokenizer import load_tokenizer

EXTRA = "text"
_FILES = "config.json, model.safetensors and its tokenizer"
_ROUNDING = 1e-4
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")  # in configurations


def make(factory: str, *, loss: str, outputs: int | None, untied: bool = False) -> Reader:
    """The model that lies where `factory` says, as a module for rows of such a loss.

    Dropout is left out, new heads begin at zero, and whatever else is new begins as transformers
    has it, drawn from torch's own generator. `untied`: no weight is used in two places.
    """
    place = place_of(factory)
    config = config_of(place)
    if getattr(config, "is_encoder_decoder", False):
        raise InvalidInput(
            f"{place.where} reads one text to write another ({config.model_type}); take a model "
            "that only reads (BERT, RoBERTa) or only goes on (GPT-2, OPT, Llama)."
        )
    if any(getattr(config, name, None) for name in _EXPERTS):
        raise InvalidInput(
            f"{place.where} sends words to experts ({config.model_type}), many texts' together, so "
            "what is computed of one depends on the others; take a model without experts."
        )
    for name, value in for_training(config).items():
        setattr(config, name, value)
    if loss == "words":
        return Words(*_for_words(place, config, untied))
    if loss == "spans":
        return Spans(*_with_head(place, config, "AutoModelForQuestionAnswering", untied))
    if outputs is None:
        raise InvalidInput("give the engine its number of outputs, or make it with for_data().")
    config.num_labels = outputs
    inside = loss == "inside"
    if _takes_means(place):
        model, traits = _with_head(place, config, "AutoModel", untied)
        model.pooler = None  # which nothing would look at
        return (MeanClassifierInside if inside else MeanClassifier)(model, traits, outputs)
    model, traits = _with_head(place, config, "AutoModelForSequenceClassification", untied)
    model.config.pad_token_id = traits.padding  # by which transformers finds a text's last word
    return (ClassifierInside if inside else Classifier)(model, traits)


def pinned(factory: str) -> str:
    """The same with the commit that a name on the hub stands for now."""
    return f"{PRETRAINED}{place_of(factory).pinned('config.json', _FILES)}"


def place_of(factory: str) -> ModelPlace:
    return ModelPlace.of(pretrained_name(factory))


def config_of(place: ModelPlace) -> Any:
    """As it is stored."""
    transformers = transformers_package(EXTRA)
    try:
        with quiet(transformers):
            return transformers.AutoConfig.from_pretrained(place.where, **place.options)
    except Exception as problem:  # transformers fails in more ways than can be listed
        raise place.unreachable(problem, _FILES, "config.json") from problem


def must_know_words(factory: str, tokenizer: str) -> None:
    """Refuse a tokenizer with words that the model has no numbers for: a row that has one would
    stop a run that was paid for, and tell by that that it is there."""
    place, words = place_of(factory), load_tokenizer(tokenizer).get_vocab().values()
    known = config_of(place).get_text_config().vocab_size
    if max(words) >= known:
        raise InvalidInput(
            f"the tokenizer {tokenizer} has words up to number {max(words)}, and the model "
            f"{place.where} knows {known}, from 0 on. Take the model's own tokenizer, without "
            "words that were added to it, or save the model with room for them "
            "(resize_token_embeddings)."
        )


def _for_words(place: ModelPlace, config: Any, untied: bool) -> tuple[Any, Traits]:
    model, new = _loaded(place, "AutoModelForCausalLM", config)
    traits = _traits(place, model)
    if not traits.causal:
        raise InvalidInput(
            f"{place.where} sees the words that it would have to guess; for words take a model "
            "that goes on with a text (GPT-2, OPT, Llama)."
        )
    _must_be_complete(place, new)
    if untied:
        untie(model)
    return model, traits


def _with_head(place: ModelPlace, config: Any, kind: str, untied: bool) -> tuple[Any, Traits]:
    """A model whose head may be new."""
    model, new = _loaded(place, kind, config)
    lacks = _of_the_base(model, new)
    if lacks and model.base_model is not model:
        # Some models have another name for their base where questions are answered.
        new = sorted({*new} - {*lacks})
        base, lacks = _loaded(place, "AutoModel", config)
        setattr(model, model.base_model_prefix, base)
        new += [f"{model.base_model_prefix}.{name}" for name in lacks]
    _must_be_complete(place, [name for name in lacks if "pooler" not in name])
    _begin_at_zero(model, new)
    if untied:
        untie(model)
    return model, replace(_traits(place, model), new=tuple(new))


def _must_be_complete(place: ModelPlace, lacks: list[str]) -> None:
    if lacks:
        raise InvalidInput(
            f"The weights of {place.where} are not complete for this task: {len(lacks)} arrays are "
            f"missing, the first is {lacks[0]}. Take a model that was saved with them ({_FILES})."
        )


def for_training(config: Any) -> dict[str, Any]:
    """What is changed of a configuration: without dropout, a pass in train() is the same as one in
    eval(), and nothing is kept for the next word."""
    drops = [name for name, value in config.to_dict().items() if _is_dropout(name, value)]
    return {"use_cache": False} | dict.fromkeys(drops, 0.0)


def _is_dropout(name: str, value: Any) -> bool:
    return "drop" in name and isinstance(value, float)


def _loaded(place: ModelPlace, kind: str, config: Any) -> tuple[Any, list[str]]:
    """A model, and the names of its weights that are not in the file."""
    transformers = transformers_package(EXTRA)
    try:
        with quiet(transformers):
            model, report = getattr(transformers, kind).from_pretrained(
                place.where,
                config=config,
                **place.options,
                use_safetensors=True,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # heads with another number of classes
                output_loading_info=True,
            )
    except Exception as problem:  # transformers fails in more ways than can be listed
        raise place.unreachable(problem, _FILES) from problem
    others = [name if isinstance(name, str) else name[0] for name in report["mismatched_keys"]]
    return model, sorted({*report["missing_keys"], *others})


def _of_the_base(model: Any, names: list[str]) -> list[str]:
    """Those that are not of a head."""
    prefix = f"{model.base_model_prefix}."
    return names if model.base_model is model else [n for n in names if n.startswith(prefix)]


def _takes_means(place: ModelPlace) -> bool:
    """Whether sentence-transformers takes the mean over a text's words with this model."""
    found = place.file("1_Pooling/config.json", _FILES)
    if found is None:
        return False
    told = read_json(found.read_bytes(), str(found))
    return bool(told.get("pooling_mode_mean_tokens", told.get("pooling_mode") == "mean"))


def _begin_at_zero(model: Any, new: list[str]) -> None:
    """The last layer, if it knows nothing yet: what is before it could not begin so."""
    name, last = [(n, one) for n, one in model.named_modules() if isinstance(one, nn.Linear)][-1]
    if f"{name}.weight" in new:
        nn.init.zeros_(last.weight)
        if last.bias is not None:
            nn.init.zeros_(last.bias)


def _traits(place: ModelPlace, model: Any) -> Traits:
    config = model.config
    marks = [getattr(config, name, None) for name in ("pad_token_id", "eos_token_id")]
    found = [mark[0] if isinstance(mark, list) else mark for mark in marks if mark is not None]
    # Of a small model the configuration may name words that its table does not have.
    known = [mark for mark in found if 0 <= mark < model.get_input_embeddings().num_embeddings]
    causal, whole_masks = _is_causal(model), _takes_whole_masks(model)
    if not causal and not whole_masks:
        # Of plain masks, any other way asks whether all rows are full, and rounds otherwise then.
        model.set_attn_implementation("eager")
    return Traits(
        padding=known[0] if known else 0,
        separator=_separator(place) if tells_texts_apart(model) else None,
        causal=causal,
        whole_masks=whole_masks,
        longest=_longest(model),
    )


def _separator(place: ModelPlace) -> int | None:
    """What stands between two texts; None where the model has no tokenizer beside it."""
    try:
        number: int | None = load_tokenizer(str(place)).sep_token_id
    except InvalidInput:
        return None
    return number


def _is_causal(model: Any) -> bool:
    """Whether earlier words stay as they are when a later one is another."""
    words = _some_words(model)
    words[1, -1] = words[1, 0]
    one, two = _states(model, words)[:, :-1]
    return _same(one, two)


def _takes_whole_masks(model: Any) -> bool:
    """Whether a mask (rows, 1, words, words) does what a plain one does, which models of their own
    kind of attention do not promise."""
    config = model.config
    looks_near = any(getattr(config, name, None) for name in ("sliding_window", "local_attention"))
    if looks_near or config._attn_implementation != "sdpa":
        return False
    words, known = _some_words(model), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    plain = _states(model, words, attention_mask=known)
    try:
        whole = known.bool()[:, None, None].expand(-1, 1, 4, -1)
        return _same(plain[1, :2], _states(model, words, attention_mask=whole)[1, :2])
    except (RuntimeError, ValueError, TypeError, IndexError):
        return False


def _some_words(model: Any) -> Tensor:
    words = torch.arange(4) + model.get_input_embeddings().num_embeddings // 2
    return torch.stack([words, words])


def _states(model: Any, words: Tensor, **more: Tensor) -> Tensor:
    training = model.training
    with torch.no_grad():
        found = model.eval().base_model(words, return_dict=True, **more)
    model.train(training)
    states: Tensor = found.last_hidden_state
    return states


def _same(one: Tensor, two: Tensor) -> bool:
    return float((one - two).abs().max()) <= _ROUNDING * float(one.abs().max())


def _longest(model: Any) -> int | None:
    most = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(most, int) or most <= 0:
        return None
    for name, one in model.named_modules():
        if isinstance(one, nn.Embedding) and "position" in name and one.padding_idx is not None:
            return most - one.padding_idx - 1  # RoBERTa's positions begin after that
    return most
