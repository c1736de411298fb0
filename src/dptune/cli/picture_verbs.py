"""Verbs that compute features of pictures and texts, and compare public backbones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from dptune.cli import screen
from dptune.cli.parameters import (
    BACKBONE,
    IMAGES,
    TEXTS,
    AsJson,
    Device,
    FeatureKind,
    Kind,
    LanguageModel,
    NetworkDevice,
    PictureRoot,
    PictureSize,
    Precision,
    PrivateTexts,
    TextColumns,
    TextLength,
    in_words,
    option,
)
from dptune.errors import InvalidInput


def extract(
    out: Annotated[
        str,
        option(
            "The folder to write; features that are there are kept.",
            "--out",
            "-o",
            metavar="FOLDER",
        ),
    ],
    images: Annotated[
        str | None, option(f"The private pictures: {IMAGES}.", metavar="PICTURES")
    ] = None,
    backbone: Annotated[list[str] | None, BACKBONE] = None,
    features: FeatureKind = None,
    size: PictureSize = None,
    text: PrivateTexts = None,
    column: TextColumns = None,
    label: Annotated[
        str | None,
        option("With --text: the column of labels. Default: label.", metavar="COLUMN", group=TEXTS),
    ] = None,
    model: LanguageModel = None,
    length: TextLength = None,
    test: Annotated[
        str | None,
        option(
            "Public test pictures or texts. Default: the test part of --images or --text, if it "
            "has one.",
            metavar="PICTURES",
        ),
    ] = None,
    public: Annotated[str | None, option("Public pictures or texts.", metavar="PICTURES")] = None,
    shift: Annotated[
        list[str] | None,
        option(
            "Public test pictures or texts of another origin: stl10, cifar10.1, cifar10-c, "
            "corrupted:gaussian_blur, a folder, a file of texts. Repeatable.",
            metavar="PICTURES",
        ),
    ] = None,
    root: PictureRoot = None,
    device: NetworkDevice = Device.cpu,
    precision: Annotated[
        Precision | None,
        option(
            f"What networks compute in: {in_words(Precision)}. Default: float32 on a CPU, "
            "bfloat16 on a GPU.",
            metavar="PRECISION",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make features of pictures or texts with a public network: rows for tune --data.

    If it is interrupted, repeat the command to continue. Examples: dptune extract --images
    pets --backbone lite0 -o features/pets

    dptune extract --text mails.csv --column body --label topic --model FOLDER --features mean
    -o features/mails
    """
    if (images is None) == (text is None):
        raise InvalidInput("give the private pictures with --images, or texts with --text.")
    beside = {"test": test, "public": public, "shifts": shift}
    if images is not None:
        screen.say_listing()
        from dptune.cli.picture_rows import open_pictures
        from dptune.features.from_pictures import has_test_pictures

        _must_not_be_given(
            {"--column": column, "--label": label, "--model": model, "--length": length}, "--images"
        )
        if test is None and has_test_pictures(images, root):
            beside["test"] = images
        parts, networks = open_pictures(
            beside,
            images=images,
            backbone=backbone,
            features=(features or Kind.pooled).value,
            size=size,
            root=root,
            device=device.value,
            precision=precision and precision.value,
        )
    else:
        assert text is not None
        screen.say_reading()
        from dptune.cli.text_features import open_texts
        from dptune.features.from_texts import has_test_texts

        _must_not_be_given({"--backbone": backbone, "--size": size, "--root": root}, "--text")
        if test is None and has_test_texts(text):
            beside["test"] = text
        parts, networks = open_texts(
            beside,
            text=text,
            column=column,
            label=label,
            model=model,
            features=(features or Kind.mean).value,
            length=length,
            device=device.value,
            precision=precision and precision.value,
        )
    from dptune.cli import picture_screen
    from dptune.features.extraction import write_features
    from dptune.features.from_pictures import place_of

    source = place_of(images or text or "")
    with picture_screen.live_view() as watch:
        extraction = write_features(parts, networks, out, source=source, watch=watch)
    screen.show(
        as_json,
        picture_screen.to_dict(extraction),
        lambda: picture_screen.show_extraction(extraction, to_tune=True),
    )


def _must_not_be_given(options: Mapping[str, object], beside: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(f"{name} and {beside} do not go together; leave one out.")


def backbones(
    public: Annotated[
        str | None,
        option(
            "Public pictures to compare backbones on: a folder, or a set by name.",
            metavar="PICTURES",
        ),
    ] = None,
    backbone: Annotated[
        list[str] | None,
        option(
            "A backbone to compare. Repeatable. Default: all that are installed.",
            metavar="NAME",
        ),
    ] = None,
    pictures: Annotated[int, option("How many of the public pictures to take at most.")] = 2000,
    root: PictureRoot = None,
    device: NetworkDevice = Device.cpu,
    as_json: AsJson = False,
) -> None:
    """List the backbones at hand, or rank them by their accuracy on public pictures.

    Reads no private picture and pays nothing. Example: dptune backbones --public cifar100
    """
    if public is None:
        if backbone:
            raise InvalidInput(
                "backbones are compared on public pictures; name them with --public."
            )
        from dptune.features.short_names import known_backbones

        listed = known_backbones()
        screen.show(
            as_json,
            {"backbones": [each.to_dict() for each in listed]},
            lambda: screen.show_backbones(listed),
        )
        return
    screen.say_listing()
    from dptune.cli import picture_screen
    from dptune.features.ranking import rank

    with picture_screen.live_view() as watch:
        ranked = rank(
            public,
            backbone,
            pictures=pictures,
            root=root,
            device=device.value,
            watch=watch,
        )
    screen.show(
        as_json,
        {"public": str(Path(public)), "ranking": [each.to_dict() for each in ranked]},
        lambda: picture_screen.show_ranking(ranked),
    )
