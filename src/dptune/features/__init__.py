"""Features of pictures and texts: public backbones, and what makes files of features with them."""

from typing import TYPE_CHECKING

from dptune.lazy import lazy_names

if TYPE_CHECKING:
    from dptune.features.find import find_backbone as find_backbone
    from dptune.features.from_pictures import extract as extract
    from dptune.features.from_texts import extract_texts as extract_texts
    from dptune.features.ranking import rank as rank
    from dptune.features.transform import Transform as Transform
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "from_pictures": ("extract",),
            "from_texts": ("extract_texts",),
            "find": ("find_backbone",),
            "ranking": ("rank",),
            "transform": ("Transform",),
        },
    )
