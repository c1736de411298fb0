"""Verbs about pictures: their features, and which public backbone to take for them."""

from pathlib import Path
from typing import Annotated

import typer

from dptune.cli import screen
from dptune.cli.parameters import (
    AsJson,
    Backbones,
    Device,
    FeatureKind,
    Images,
    Kind,
    NetworkDevice,
    PictureRoot,
    PictureSize,
    Precision,
    in_words,
)
from dptune.errors import InvalidInput


def extract(
    images: Images,
    backbone: Backbones,
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Where to write; what is there is gone on with."
        ),
    ],
    features: FeatureKind = Kind.pooled,
    size: PictureSize = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="PICTURES",
            help="Pictures that report a figure, as for --images. Not given: the test pictures of "
            "--images, where it has any.",
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(metavar="PICTURES", help="Pictures that are nobody's secret."),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PICTURES",
            help="Pictures of another origin to report an accuracy on: stl10, cifar10.1, "
            "cifar10-c, corrupted:gaussian_blur, a folder. May be given several times.",
        ),
    ] = None,
    root: PictureRoot = None,
    device: NetworkDevice = Device.cpu,
    precision: Annotated[
        Precision | None,
        typer.Option(
            metavar="PRECISION",
            help=f"What networks compute in: {in_words(Precision)}. Not given: float32 on a CPU, "
            "bfloat16 on a GPU.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make features of pictures with a public backbone: rows for tune --data.

    Cut off, the same command goes on where it was. Example: dptune extract --images pets
    --backbone lite0 -o features/pets
    """
    screen.say_listing()
    from dptune.cli import picture_screen
    from dptune.features.extraction import write_features
    from dptune.features.from_pictures import find_networks, gather, has_test_pictures, place_of

    if test is None and has_test_pictures(images, root):
        test = images
    parts = gather(images, test=test, public=public, shifts=shift or (), root=root)
    picture_screen.say_loading(backbone)
    networks = find_networks(
        backbone,
        features=features.value,
        size=size,
        device=device.value,
        precision=precision and precision.value,
    )
    with picture_screen.live_view() as watch:
        extraction = write_features(parts, networks, out, source=place_of(images), watch=watch)
    screen.show(
        as_json,
        picture_screen.as_dict(extraction),
        lambda: picture_screen.show_extraction(extraction, to_tune=True),
    )


def backbones(
    public: Annotated[
        str | None,
        typer.Option(
            metavar="PICTURES",
            help="Public pictures to compare backbones on: a folder, or a set by name.",
        ),
    ] = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What to compare; may be given several times. Not given: all that are installed.",
        ),
    ] = None,
    pictures: Annotated[
        int, typer.Option(help="How many of the public pictures to take at most.")
    ] = 2000,
    root: PictureRoot = None,
    device: NetworkDevice = Device.cpu,
    as_json: AsJson = False,
) -> None:
    """List the backbones at hand, or rank them by their accuracy on public pictures.

    No private picture is read, so nothing is paid. Example: dptune backbones --public cifar100
    """
    if public is None:
        if backbone:
            raise InvalidInput(
                "backbones are compared on public pictures; name them with --public."
            )
        from dptune.features.short_names import known_backbones

        known = known_backbones()
        screen.show(
            as_json,
            {"backbones": [each.to_dict() for each in known]},
            lambda: screen.backbones(known),
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
