"""How long the check that rows do not interact takes on large models, and what it finds.

Models have random weights in bfloat16 and adapters of rank 8. A little of the mean over the rows of
a batch is planted in the middle layer: it must be found, however little.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn

from dptune.bench.harness import Report
from dptune.engines.language.reader import Classifier, Traits
from dptune.engines.modules.adapters import adapter_names, add_adapters
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.engines.modules.gradients import RowGradients
from dptune.engines.modules.losses import outputs_of, row_loss
from dptune.engines.modules.made_up import made_up, nothing_near_zero
from dptune.engines.modules.row_check import problems_on_rows
from dptune.errors import InvalidInput

# Hidden numbers of a word, layers, heads.
SIZES = {
    "opt-125m": (768, 12, 12),
    "opt-1.3b": (2048, 24, 32),
    "opt-6.7b": (4096, 32, 32),
    "opt-13b": (5120, 40, 40),
}
WORDS, ROWS = 384, 4
PLANTED = (0.0, 1e-2, 1e-3, 1e-5)


def model_of(size: str, device: torch.device, attention: str) -> Classifier:
    import transformers

    hidden, layers, heads = SIZES[size]
    options: dict[str, Any] = {"num_labels": 2, "attn_implementation": attention}
    config = transformers.OPTConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        ffn_dim=4 * hidden, word_embed_proj_dim=hidden, dropout=0.0, use_cache=False,
        **options,
    )  # fmt: skip
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            model = transformers.OPTForSequenceClassification(config)
    finally:
        torch.set_default_dtype(before)
    model.config.pad_token_id = 1
    causal = Traits(padding=1, separator=None, causal=True, whole_masks=False, longest=None)
    return Classifier(model, causal)


def check(size: str, device: torch.device, attention: str, report: Report) -> None:
    module = model_of(size, device, attention)
    add_adapters(module, rank=8, alpha=16.0, base_dtype=torch.bfloat16)
    module.to(device)
    names = adapter_names(module)
    for name, parameter in module.named_parameters():
        if name in names:
            parameter.data = parameter.data.float()
    rows, others = (
        made_up(module, (WORDS,), ROWS, ids=True, seed=seed).to(device) for seed in (0, 1)
    )
    middle: Any = module.model.model.decoder.layers[SIZES[size][1] // 2]
    for share in PLANTED:
        handle = middle.register_forward_hook(planted(share))
        began = time.perf_counter()
        with nothing_near_zero(module, names):
            found = problems_on_rows(module, rows, others, compute="bfloat16")
        seconds = time.perf_counter() - began
        said = "; ".join(f"{one.layer}: {one.what}" for one in found) or "rows do not interact"
        report(f"{size} {attention}, planted {share:g}: {seconds:.1f} s, {said}")
        handle.remove()
    flat = FlatWeights(module, names, device)
    loss, targets = row_loss("softmax"), torch.arange(ROWS, device=device) % 2
    for share in (0.0, 1e-5):
        handle = middle.register_forward_hook(planted(share))
        gradients = RowGradients(
            flat.module,
            flat.trained,
            lambda found, t: loss(outputs_of(found), t),
            compute="bfloat16",
        )
        began = time.perf_counter()
        said = "gradients of rows do not interact"
        with nothing_near_zero(flat.module, flat.trained):
            try:
                gradients.trace(rows[:, None], targets)
            except InvalidInput as refused:
                said = str(refused)[:90]
        seconds = time.perf_counter() - began
        report(f"  planted {share:g}: gradients {seconds:.1f} s, {said}")
        handle.remove()
    if device.type == "cuda":
        report(f"  peak {torch.cuda.max_memory_allocated() / 2**30:.0f} GiB")


def planted(share: float) -> Any:
    def mix(part: nn.Module, given: Any, gave: Any) -> Any:
        if not share:
            return None
        hidden: Tensor = gave[0] if isinstance(gave, tuple) else gave
        mixed = hidden + share * hidden.mean(0)
        return (mixed, *gave[1:]) if isinstance(gave, tuple) else mixed

    return mix
