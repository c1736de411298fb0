"""A zoo of modules: those whose rows keep to themselves, and those whose rows do not, each with
made-up rows and, for the latter, how the refusal reads."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

WORDS = 13
Make = Callable[[], nn.Module]


class Cells(nn.Module):
    """A recurrent cell, called once a word; an LSTM's gives two tensors, one made of the other."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.cell, self.outer = kind(6, 5), nn.Linear(5, 3)

    def forward(self, rows: Tensor) -> Tensor:
        hidden: Any = None
        for place in range(rows.shape[1]):
            hidden = self.cell(rows[:, place], hidden)
        answer: Tensor = self.outer(hidden[0] if isinstance(hidden, tuple) else hidden)
        return answer


class Bag(nn.Module):
    """Tells rows apart by where they begin in one long list."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.outer = nn.EmbeddingBag(WORDS, 8), nn.Linear(8, 3)

    def forward(self, rows: Tensor) -> Tensor:
        begins = torch.arange(0, rows.numel(), rows.shape[1], device=rows.device)
        answer: Tensor = self.outer(self.words(rows.flatten(), begins))
        return answer


class OwnTable(nn.Module):
    """Looks words up in a table that is a plain parameter; others are read as its ends."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.outer = nn.Parameter(torch.randn(WORDS, 4)), nn.Linear(4, 3)

    def forward(self, rows: Tensor) -> Tensor:
        answer: Tensor = self.outer(self.between(self.table[self.known(rows)].mean(1)))
        return answer

    def known(self, rows: Tensor) -> Tensor:
        return rows.clamp(0, WORDS - 1)

    def between(self, hidden: Tensor) -> Tensor:
        return hidden


class Around(nn.Module):
    """Two layers, and between them whatever a subclass does to hidden numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, rows: Tensor) -> Tensor:
        answer: Tensor = self.outer(self.between(self.inner(rows)))
        return answer

    def between(self, hidden: Tensor) -> Tensor:
        raise NotImplementedError


class Gated(Around):
    """A branch that begins at nothing, by a parameter that is a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.tensor(0.0))

    def between(self, hidden: Tensor) -> Tensor:
        return hidden + self.gate * hidden.tanh()


class UsedTwice(Around):
    """Uses a layer's weight outside of the layer, too."""

    def between(self, hidden: Tensor) -> Tensor:
        return hidden.tanh() @ self.inner.weight


class AllExperts(Around):
    """Every expert takes all rows, and what does not count is hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 2)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

    def between(self, hidden: Tensor) -> Tensor:
        shares = self.gate(hidden).softmax(-1).T
        parts = zip(shares, self.experts, strict=True)
        return torch.stack([share[:, None] * expert(hidden) for share, expert in parts]).sum(0)


class OneByOne(Around):
    """Calls its layer once a row."""

    def forward(self, rows: Tensor) -> Tensor:
        answer: Tensor = self.outer(torch.stack([self.inner(row).tanh() for row in rows]))
        return answer


class Mean2d(nn.Module):
    def forward(self, pictures: Tensor) -> Tensor:
        return pictures.mean((2, 3))


class Excite(nn.Module):
    """Channels are scaled by what the whole picture says."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Sequential(Mean2d(), nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 4))

    def forward(self, pictures: Tensor) -> Tensor:
        scales: Tensor = self.scale(pictures).sigmoid()
        return pictures * scales[..., None, None]


def old_weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch has a newer one
        normed = nn.utils.weight_norm(nn.Linear(6, 5))
    return nn.Sequential(normed, nn.Tanh(), nn.Linear(5, 3))


def vectors(*shape: int) -> Callable[[int], Tensor]:
    return lambda rows: torch.randn(rows, *shape)


def words(*shape: int) -> Callable[[int], Tensor]:
    return lambda rows: torch.randint(0, WORDS, (rows, *shape))


# Rows are (copies, ...): gradients are means over copies.
APART: dict[str, tuple[Make, Callable[[int], Tensor]]] = {
    "cells of an LSTM": (lambda: Cells(nn.LSTMCell), vectors(1, 4, 6)),
    "cells of a GRU": (lambda: Cells(nn.GRUCell), vectors(2, 4, 6)),
    "bag of words by places": (Bag, words(1, 9)),
    "bag of words": (
        lambda: nn.Sequential(nn.EmbeddingBag(WORDS, 8, mode="sum"), nn.Linear(8, 3)),
        words(2, 9),
    ),
    "a table of its own": (OwnTable, words(1, 9)),
    "older weight norm": (old_weight_norm, vectors(1, 6)),
    "orthogonal weights": (
        lambda: nn.Sequential(
            nn.utils.parametrizations.orthogonal(nn.Linear(6, 5)), nn.Tanh(), nn.Linear(5, 3)
        ),
        vectors(1, 6),
    ),
    "a parameter of one number": (Gated, vectors(2, 6)),
    "a weight used outside of its layer": (UsedTwice, vectors(1, 6)),
    "experts that see every row": (AllExperts, vectors(1, 6)),
    "a layer called once a row": (OneByOne, vectors(1, 6)),
    "transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose1d(4, 3, 3), nn.Flatten(), nn.Linear(21, 3)),
        vectors(1, 4, 5),
    ),
    "channel by channel": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 6, 1), nn.PReLU(), Mean2d(), nn.Linear(6, 3)
        ),
        vectors(1, 4, 6, 6),
    ),
    "squeeze and excite": (
        lambda: nn.Sequential(Excite(), Mean2d(), nn.Linear(4, 3)),
        vectors(1, 4, 5, 5),
    ),
}


class ByLargest(Around):
    def between(self, hidden: Tensor) -> Tensor:
        return hidden / hidden.abs().amax()


class ByLargestInput(Around):
    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows / rows.abs().amax())

    def between(self, hidden: Tensor) -> Tensor:
        return hidden


class LittleMixing(Around):
    def __init__(self, share: float, late: bool = False) -> None:
        super().__init__()
        self.share, self.late = share, late

    def between(self, hidden: Tensor) -> Tensor:
        mixed = hidden - self.share * hidden.sum(0)
        return mixed if not self.late else torch.cat([hidden[:1], mixed[1:]])


class Neighbour(Around):
    """A row meets the one before it in the batch: the first row meets nobody."""

    def between(self, hidden: Tensor) -> Tensor:
        before = torch.cat([torch.zeros_like(hidden[:1]), hidden[:-1]])
        return hidden + 0.01 * before


class RowsForWords(nn.Module):
    """Takes rows for words: the usual mistake with batch_first."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.LSTM(6, 5), nn.Linear(5, 3)

    def forward(self, rows: Tensor) -> Tensor:
        answer: Tensor = self.outer(self.inner(rows)[0])
        return answer


class HiddenByGate(Gated):
    def between(self, hidden: Tensor) -> Tensor:
        return hidden + self.gate * hidden.mean(0)


class OnlyWhenUsed(Around):
    """Mixes rows in eval() alone, where private rows are scored."""

    def between(self, hidden: Tensor) -> Tensor:
        return hidden if self.training else hidden - hidden.mean(0)


class OwnTableUnbound(OwnTable):
    """Fails on a word that is not in its table."""

    def known(self, rows: Tensor) -> Tensor:
        return rows


class OwnTableMixing(OwnTable):
    """Shows no mixing where all rows hold the same words."""

    def between(self, hidden: Tensor) -> Tensor:
        return hidden - 0.5 * hidden.mean(0)


class CountsWords(nn.Module):
    """Counts the words of a row beside looking them up, and fails on one that it does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.outer = nn.Embedding(WORDS, 4), nn.Linear(4 + WORDS, 3)

    def forward(self, rows: Tensor) -> Tensor:
        counts = nn.functional.one_hot(rows, WORDS).float().mean(1)
        answer: Tensor = self.outer(torch.cat([self.words(rows).mean(1), counts], 1))
        return answer


class Counts(Around):
    def between(self, hidden: Tensor) -> Tensor:
        return hidden / len(hidden)


class Experts(AllExperts):
    """Each expert takes the rows that choose it."""

    def between(self, hidden: Tensor) -> Tensor:
        chosen, found = self.gate(hidden).argmax(-1), torch.zeros_like(hidden)
        for number, expert in enumerate(self.experts):
            found = found.index_put((chosen == number,), expert(hidden[chosen == number]))
        return found


class WithoutPadding(nn.Module):
    """Leaves out words with number 0 before its linear layer, as packed transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.linear, self.head = (
            nn.Embedding(WORDS, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 3),
        )

    def forward(self, ids: Tensor) -> Tensor:
        found, there = self.words(ids), ids != 0
        packed = self.linear(found[there])
        answer: Tensor = self.head(torch.zeros_like(found).index_put((there,), packed).sum(1))
        return answer


class Renormed(nn.Module):
    def __init__(self, kind: type = nn.Embedding) -> None:
        super().__init__()
        self.words, self.head = kind(WORDS, 4, max_norm=0.5), nn.Linear(4, 3)

    def forward(self, ids: Tensor) -> Tensor:
        found = self.words(ids)
        answer: Tensor = self.head(found.mean(1) if found.ndim == 3 else found)
        return answer


class LargestSeen(Around):
    """A buffer that keeps the largest number seen."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros(()))

    def between(self, hidden: Tensor) -> Tensor:
        self.largest: Tensor
        self.largest.copy_(torch.maximum(self.largest, hidden.detach().abs().max()))
        return hidden


class LargestByData(LargestSeen):
    """The same, out of sight of torch's count of writes."""

    def between(self, hidden: Tensor) -> Tensor:
        self.largest.data.fill_(float(hidden.detach().abs().max()))
        return hidden


class LargestReplaced(LargestSeen):
    def between(self, hidden: Tensor) -> Tensor:
        self.largest = hidden.detach().abs().max()
        return hidden


class LargestOutOfTorch(Around):
    """A plain attribute that keeps the largest number seen, and divides by it."""

    largest = 1.0

    def between(self, hidden: Tensor) -> Tensor:
        answer = hidden / self.largest
        self.largest = max(self.largest, float(hidden.abs().max()))
        return answer


class CountsPasses(LargestSeen):
    def between(self, hidden: Tensor) -> Tensor:
        self.largest += 1
        return hidden


class RunningMean(Around):
    """A frozen parameter that keeps a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(6), requires_grad=False)

    def between(self, hidden: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(hidden.mean(0), 0.1)
        return hidden


class KeptInEval(RunningMean):
    def between(self, hidden: Tensor) -> Tensor:
        if not self.training:
            self.mean.data = hidden.detach().mean(0)
        return hidden


class Fails(Around):
    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most

    def forward(self, rows: Tensor) -> Tensor:
        if float(rows.abs().max()) > self.most:
            raise ValueError("a number is too large")
        return super().forward(rows)

    def between(self, hidden: Tensor) -> Tensor:
        return hidden


class OwnNoise(Around):
    """Draws from a generator that torch's seed does not reach."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = torch.Generator().manual_seed(0)

    def between(self, hidden: Tensor) -> Tensor:
        return hidden + 0.1 * torch.randn(hidden.shape, generator=self.numbers).to(hidden)


def encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 3))


class SeenTogether(nn.Sequential):
    """A deep network with a little of the batch's mean in its middle, in bfloat16."""

    def __init__(self, share: float) -> None:
        blocks = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(48)]
        super().__init__(nn.Linear(6, 16), *blocks, nn.Linear(16, 3))
        self.share = share

    def forward(self, rows: Tensor) -> Tensor:
        hidden = rows
        for place, block in enumerate(self):
            hidden = block(hidden)
            if place == 24:
                hidden = hidden + self.share * hidden.mean(0)
        return hidden


MIXES, KEEPS = "depends on the other rows", "would keep something of them"
TOGETHER: dict[str, tuple[Make, Callable[[int], Tensor], str]] = {
    "divided by the batch's largest": (ByLargest, vectors(6), MIXES),
    "divided by the batch's largest input": (ByLargestInput, vectors(6), MIXES),
    "1e-4 of the sum": (lambda: LittleMixing(1e-4), vectors(6), MIXES),
    "1e-7 of the sum": (lambda: LittleMixing(1e-7), vectors(6), MIXES),
    "in all rows but the first": (lambda: LittleMixing(1e-3, late=True), vectors(6), MIXES),
    "1e-3 of the mean, deep, in bfloat16": (
        lambda: SeenTogether(1e-3).bfloat16(),
        vectors(6),
        MIXES,
    ),
    "the row before": (Neighbour, vectors(6), MIXES),
    "rows taken for words": (RowsForWords, vectors(6), f"layer inner.*{MIXES}"),
    "behind a gate at zero": (HiddenByGate, vectors(6), MIXES),
    "in eval() alone": (OnlyWhenUsed, vectors(6), MIXES),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)),
        vectors(6),
        "layer 1: batch norm mixes",
    ),
    "the number of rows": (Counts, vectors(6), "depends on how many rows there are"),
    "experts that rows choose": (Experts, vectors(6), "experts.0: what it is given is picked by"),
    "words without padding": (WithoutPadding, words(9), "linear: what it is given is picked by"),
    "embedding with max_norm": (Renormed, words(4), "layer words: with max_norm it rewrites"),
    "bag with max_norm": (
        lambda: Renormed(nn.EmbeddingBag),
        words(4),
        "layer words: with max_norm it rewrites",
    ),
    "largest number seen": (LargestSeen, vectors(6), f"buffer largest changes.*{KEEPS}"),
    "largest number, by data": (LargestByData, vectors(6), f"buffer largest changes.*{KEEPS}"),
    "largest number, replaced": (LargestReplaced, vectors(6), f"buffer largest changes.*{KEEPS}"),
    "largest number, a plain attribute": (
        LargestOutOfTorch,
        vectors(6),
        "two passes over the same rows|rows that passed before",
    ),
    "passes counted": (CountsPasses, vectors(6), f"buffer largest changes.*{KEEPS}"),
    "running mean in a frozen parameter": (RunningMean, vectors(6), "parameter mean changes"),
    "mean kept in eval()": (KeptInEval, vectors(6), "parameter mean changes"),
    "spectral norm": (
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3)),
        vectors(6),
        "norm that is remembered",
    ),
    "fails on large numbers": (lambda: Fails(1e2), vectors(6), "could end a run that is paid for"),
    "fails on the largest": (lambda: Fails(1e37), vectors(6), "could end a run that is paid for"),
    "noise of its own": (OwnNoise, vectors(6), "two passes over the same rows"),
    "encoder with torch's usual dropout": (
        encoder,
        vectors(5, 8),
        "0.self_attn: it draws its drop",
    ),
    "LSTM with dropout": (
        lambda: nn.Sequential(nn.LSTM(6, 3, num_layers=2, dropout=0.5, batch_first=True)),
        vectors(4, 6),
        "layer 0: it draws its dropout",
    ),
}
