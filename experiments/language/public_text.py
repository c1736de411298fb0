"""Public text for a small language model: its tokenizer, one long stream of words to learn from,
and mails as rows. The tokenizer sees public text only."""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dptune.bench.harness import Report
from dptune.texts.cutting import NOT_ASKED, PADDING
from experiments.language.prepare import ragged, records

TEXTS, MAILS, NETWORK = "public_text", "enron", "gpt2"
VOCABULARY, LENGTH = 8192, 256
END = "<|endoftext|>"
_HELD_BACK = 1000  # mails, the last of the file, which is shuffled
_VALID = 50  # one text in so many only validates
_MAILS = "enron_ham.jsonl.gz"


def prepare_texts(texts: Path, more: Sequence[Path], out: Path, report: Report) -> None:
    """Files for `pretrain` and `lm`; `more` are folders with further .txt files."""
    (out / NETWORK).mkdir(parents=True, exist_ok=True)
    public = list(dict.fromkeys(_public(texts, more)))
    report(f"public text: {len(public):,} pieces, {sum(map(len, public)) / 1e6:.1f} MB")
    tokenizer = train_tokenizer(public, VOCABULARY)
    tokenizer.save(str(out / NETWORK / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "bos_token": END}
    (out / NETWORK / "tokenizer_config.json").write_text(json.dumps(told, indent=2) + "\n")
    end = tokenizer.token_to_id(END)
    parts: dict[str, list[int]] = {"train": [], "valid": []}
    for number, encoded in enumerate(tokenizer.encode_batch(public)):
        parts["valid" if number % _VALID == 0 else "train"] += [end, *encoded.ids]
    arrays: dict[str, Any] = {
        name: np.array(words, dtype=np.int16) for name, words in parts.items()
    }
    np.savez_compressed(out / f"{TEXTS}.npz", **arrays)
    report(f"{len(arrays['train']):,} words to learn from, {len(arrays['valid']):,} to validate")
    mails = records(texts / _MAILS)
    words = [[end, *one.ids, end] for one in tokenizer.encode_batch([m["text"] for m in mails])]
    boxes = sorted({mail["mailbox"] for mail in mails})
    owners = np.array([boxes.index(mail["mailbox"]) for mail in mails], dtype=np.int16)
    np.savez_compressed(
        out / f"{MAILS}.npz",
        **ragged(words[:-_HELD_BACK], "train"),
        **ragged(words[-_HELD_BACK:], "test"),
        train_owners=owners[:-_HELD_BACK],
        test_owners=owners[-_HELD_BACK:],
    )
    cut = float(np.mean([len(one) > LENGTH for one in words]))
    report(f"{len(words):,} mails of {len(boxes)} boxes, {100 * cut:.0f} % longer than {LENGTH}")


def train_tokenizer(texts: Iterable[str], words: int) -> Any:
    """Byte pairs, as GPT-2 has them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=words,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _public(texts: Path, more: Sequence[Path]) -> Iterator[str]:
    for name in ("newsgroups20", "ag_news_test", "subj", "qnli_dev", "trec"):
        for row in records(texts / f"{name}.jsonl.gz"):
            yield " ".join(
                str(row[key]) for key in ("title", "text", "question", "sentence") if key in row
            )
    for part in ("valid", "test"):
        with gzip.open(texts / f"wikitext2_{part}.txt.gz", "rt", encoding="utf-8") as lines:
            yield from (line.strip() for line in lines if len(line) > 40)
    for folder in more:
        for file in sorted(folder.rglob("*.txt")):
            yield from _paragraphs(file.read_text(encoding="utf-8", errors="ignore"))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        line = " ".join(paragraph.split())
        if len(line) > 40:
            yield line


def rows_of_words(table: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """(rows, 2, length): words, and the same words asked for; nothing is asked of padding."""
    answers = np.where(table == PADDING, NOT_ASKED, table)
    return np.stack([table, answers], 1).astype(np.int32)
