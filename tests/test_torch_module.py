"""TorchModule keeps the promises of every engine."""

from typing import ClassVar

import own_networks

from dptune.engines.modules.torch_module import TorchModule
from support.engine_conformance import EngineConformance


class TestSmall(EngineConformance):
    engine: ClassVar = TorchModule(own_networks.small)


class TestPictures(EngineConformance):
    engine: ClassVar = TorchModule(own_networks.convolutional, rows_at_once=5)
    shape: ClassVar = (1, 3, 3)


class TestWords(EngineConformance):
    engine: ClassVar = TorchModule(own_networks.of_words, ids=True)
