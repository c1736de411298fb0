"""The search for hyperparameters: methods, the space they search, and scores that compare trials.

This package has all that your own search method needs; docs/guide/search-methods.md says how to
write one.
"""

from dptune.search.base import Census as Census
from dptune.search.base import Facts as Facts
from dptune.search.base import SearchMethod as SearchMethod
from dptune.search.base import Situation as Situation
from dptune.search.base import Stage as Stage
from dptune.search.grid_search import GridSearch as GridSearch
from dptune.search.hypo import Hypo as Hypo
from dptune.search.law import best_noise as best_noise
from dptune.search.law import displacement as displacement
from dptune.search.linear_scaling import LinearScaling as LinearScaling
from dptune.search.methods import register_method as register_method
from dptune.search.one_step import OneStep as OneStep
from dptune.search.paper_line import PaperLine as PaperLine
from dptune.search.picture import CurvePicture as CurvePicture
from dptune.search.picture import LinePicture as LinePicture
from dptune.search.picture import Point as Point
from dptune.search.private_selection import PrivateSelection as PrivateSelection
from dptune.search.private_selection import SubsetSelection as SubsetSelection
from dptune.search.random_search import RandomSearch as RandomSearch
from dptune.search.score import HeldOutScore as HeldOutScore
from dptune.search.score import NoisyScore as NoisyScore
from dptune.search.score import PublicScore as PublicScore
from dptune.search.score import Score as Score
from dptune.search.score import UnpaidScore as UnpaidScore
from dptune.search.sealing import Sealing as Sealing
from dptune.search.sealing import Subset as Subset
from dptune.search.space import Setting as Setting
from dptune.search.space import Space as Space
from dptune.search.trial import Trial as Trial
from dptune.search.trial import scored_trials as scored_trials
from dptune.search.unit_noise import UnitNoise as UnitNoise
from dptune.search.wosm import Wosm as Wosm
