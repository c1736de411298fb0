"""`python -m experiments`: every measurement that the documentation speaks of, a verb each.

Options, output, --json and exit codes are as in the command line of dptune.
"""

from typing import Any

import typer

from dptune.cli.app import run_verbs
from experiments.default import verbs as default
from experiments.language import verbs as language
from experiments.law import verbs as law
from experiments.modules import verbs as modules
from experiments.noise import verbs as noise
from experiments.paper import verbs as paper
from experiments.sets import verbs as sets
from experiments.synthetic import verbs as synthetic
from experiments.tables import verbs as tables
from experiments.vision import verbs as pictures

app = typer.Typer(
    help="Measure again what dptune's documentation says, on public data.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
PANELS: dict[str, dict[str, Any]] = {
    "The linear scaling paper": {"run": paper.run, "vision": pictures.vision},
    "The default of tune": {
        "sets": sets.app,
        "gains": default.gains,
        "drawn": default.drawn,
        "against": default.against,
        "adult-magic": default.adult_magic,
        "directions": default.directions,
    },
    "The law of best noise": {
        "best-noise": law.map_best_noise,
        "fit-law": law.fit_law,
        "clip-norms": law.clip_norms,
        "unseen": law.unseen,
    },
    "Engines and kinds of data": {
        "language": language.app,
        "modules": modules.app,
        "tables": tables.app,
        "synthetic": synthetic.app,
        "imagenet-shape": pictures.imagenet_shape,
        "last-bits": noise.last_bits,
        "augmented-copies": pictures.augmented_copies,
    },
}
for panel, verbs in PANELS.items():
    for name, verb in verbs.items():
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(verb)


def main() -> None:
    run_verbs(app, "python -m experiments")


if __name__ == "__main__":
    main()
