"""Tiny language models with random weights, each in a folder as the hub has them: config, weights
in safetensors, and a tokenizer that knows a few words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dptune.hub import quiet

_WORDS = """
the a of to and in is it was for on with he she they we you not good bad great awful fine
film book play song story plot mail team game price market bank stock match goal player
red green blue dog cat bird house tree river road car train ship sun moon star day night
what who where when why how many one two three four five six seven eight nine ten yes no
never always very quite rather more less old new big small fast slow warm cold . , ? !
"""
WORDS = tuple(_WORDS.split())
LENGTH, WIDTH, LAYERS, HEADS = 64, 32, 2, 2
KINDS = ("bert", "roberta", "gpt2", "opt", "llama")

# What an architecture calls its special words, in the order of their numbers.
_MARKS: dict[str, dict[str, str]] = {
    "bert": {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    },
    "roberta": {
        "bos_token": "<s>",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    },
    "gpt2": {"eos_token": "<|endoftext|>", "unk_token": "<unk>"},  # no padding, as in the real one
    "opt": {"bos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
    "llama": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
}


def write_tiny_model(folder: Path, kind: str, *, seed: int = 0) -> Path:
    """The pretrained model of that kind, without a head for any task (GPT-2, OPT and Llama: with
    their head for words), and its tokenizer, in `folder`."""
    transformers = pytest.importorskip("transformers")
    tokenizer = tiny_tokenizer(kind)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = _MODELS[kind](transformers, len(tokenizer), _numbers(tokenizer))
    with quiet(transformers):
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_mean_pooling(folder: Path) -> None:
    """Say, as sentence-transformers does, that a text is the mean of its words."""
    (folder / "1_Pooling").mkdir()
    said = f'{{"word_embedding_dimension": {WIDTH}, "pooling_mode_mean_tokens": true}}'
    (folder / "1_Pooling" / "config.json").write_text(said)
    (folder / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},'
        ' {"idx": 1, "name": "1", "path": "1_Pooling", '
        '"type": "sentence_transformers.models.Pooling"}]'
    )


def tiny_tokenizer(kind: str) -> Any:
    """Of whole words, in lower case."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import WordLevel

    marks = _MARKS[kind]
    words = dict.fromkeys([*marks.values(), *WORDS])
    numbers = {word: number for number, word in enumerate(words)}
    made = Tokenizer(WordLevel(numbers, unk_token=marks["unk_token"]))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = _template(kind, numbers)
    if kind == "roberta":
        marks = marks | {"cls_token": "<s>", "sep_token": "</s>"}
    if kind == "opt":
        marks = marks | {"eos_token": "</s>"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=LENGTH,
        model_input_names=inputs if kind == "bert" else inputs[::2],
        **marks,
    )


def _template(kind: str, numbers: dict[str, int]) -> Any:
    """Where an architecture puts its special words."""
    from tokenizers.processors import TemplateProcessing

    single, pair = {
        "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
        "roberta": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
        "gpt2": ("$A", "$A $B"),
        "opt": ("</s> $A", "</s> $A $B"),
        "llama": ("<s> $A", "<s> $A $B"),
    }[kind]
    used = [(mark, numbers[mark]) for mark in _MARKS[kind].values() if mark in single]
    return TemplateProcessing(single=single, pair=pair, special_tokens=used)


def _numbers(tokenizer: Any) -> dict[str, int | None]:
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {name: getattr(tokenizer, name) for name in names}


def _bert(transformers: Any, words: int, marks: dict[str, int | None]) -> Any:
    return transformers.BertModel(_encoder_config(transformers.BertConfig, words, LENGTH, marks))


def _roberta(transformers: Any, words: int, marks: dict[str, int | None]) -> Any:
    # Its positions begin after the number of the padding word.
    longest = LENGTH + 1 + (marks["pad_token_id"] or 0)
    config = _encoder_config(transformers.RobertaConfig, words, longest, marks)
    config.type_vocab_size = 1
    return transformers.RobertaModel(config)


def _encoder_config(kind: Any, words: int, longest: int, marks: dict[str, int | None]) -> Any:
    return kind(
        vocab_size=words,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=longest,
        **{name: number for name, number in marks.items() if number is not None},
    )


def _gpt2(transformers: Any, words: int, marks: dict[str, int | None]) -> Any:
    config = transformers.GPT2Config(
        vocab_size=words,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=LENGTH,
        bos_token_id=marks["eos_token_id"],
        eos_token_id=marks["eos_token_id"],
    )
    return transformers.GPT2LMHeadModel(config)


def _opt(transformers: Any, words: int, marks: dict[str, int | None]) -> Any:
    config = transformers.OPTConfig(
        vocab_size=words,
        hidden_size=WIDTH,
        word_embed_proj_dim=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        ffn_dim=2 * WIDTH,
        max_position_embeddings=LENGTH,
        **marks,
    )
    return transformers.OPTForCausalLM(config)


def _llama(transformers: Any, words: int, marks: dict[str, int | None]) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=words,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=LENGTH,
        **marks,
    )
    return transformers.LlamaForCausalLM(config)


_MODELS: dict[str, Callable[..., Any]] = {
    "bert": _bert,
    "roberta": _roberta,
    "gpt2": _gpt2,
    "opt": _opt,
    "llama": _llama,
}
