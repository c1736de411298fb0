"""How hyperparameters are found: methods, the space they search, scores that compare trials."""

from dptune.search.base import Census as Census
from dptune.search.base import Facts as Facts
from dptune.search.base import SearchMethod as SearchMethod
from dptune.search.base import Situation as Situation
from dptune.search.base import Stage as Stage
from dptune.search.grid_search import GridSearch as GridSearch
from dptune.search.hypo import Hypo as Hypo
from dptune.search.linear_scaling import LinearScaling as LinearScaling
from dptune.search.paper_line import PaperLine as PaperLine
from dptune.search.parameter_free import OneStep as OneStep
from dptune.search.parameter_free import Wosm as Wosm
from dptune.search.private_selection import PrivateSelection as PrivateSelection
from dptune.search.private_selection import SubsetSelection as SubsetSelection
from dptune.search.random_search import RandomSearch as RandomSearch
from dptune.search.score import HeldOutScore as HeldOutScore
from dptune.search.score import NoisyScore as NoisyScore
from dptune.search.score import PublicScore as PublicScore
from dptune.search.score import Score as Score
from dptune.search.score import UnpaidScore as UnpaidScore
from dptune.search.space import Setting as Setting
from dptune.search.space import Space as Space
from dptune.search.trial import Trial as Trial
from dptune.search.unit_noise import UnitNoise as UnitNoise
