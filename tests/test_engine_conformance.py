"""Engines keep the same promises: the linear one, the example, one for numbers of words."""

from module_engine import SmallNetwork

from dptune.engines import LinearEngine
from support.engine_conformance import EngineConformance
from support.word_engine import WordEngine


class TestLinear(EngineConformance):
    engine = LinearEngine()
    precisions = ("float32", "bfloat16", "float64")


class TestLinearWithBias(EngineConformance):
    engine = LinearEngine(bias=True, initialization="random")


class TestExample(EngineConformance):
    engine = SmallNetwork(hidden=5)


class TestPictures(EngineConformance):
    engine = SmallNetwork(hidden=3)
    shape = (2, 3, 2)


class TestNumbersOfWords(EngineConformance):
    engine = WordEngine()
    shape = (6,)
    precisions = ("int64",)
