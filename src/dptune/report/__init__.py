"""Reports on a finished run: a picture, a model card.

Names load on first use: only pictures need matplotlib.
"""

from typing import TYPE_CHECKING

from dptune.lazy import lazy_names

if TYPE_CHECKING:
    from dptune.report.card import model_card as model_card
    from dptune.report.plots import search_picture as search_picture
    from dptune.report.publishing import publish as publish
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "card": ("model_card",),
            "plots": ("search_picture",),
            "publishing": ("publish",),
        },
    )
