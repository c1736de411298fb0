"""A plan with the options of the linear engine that is to run it, so that tests can vary both."""

from dataclasses import dataclass

from dptune.engines.linear import LinearEngine
from dptune.plan import TrainPlan


@dataclass(frozen=True, kw_only=True)
class LinearPlan(TrainPlan):
    bias: bool = False
    initialization: str = "zero"

    def engine(self, outputs: int, loss: str = "softmax") -> LinearEngine:
        return LinearEngine(
            outputs=outputs, loss=loss, bias=self.bias, initialization=self.initialization
        )
