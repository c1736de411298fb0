"""What trains: engines, their randomness, and where their jobs run."""

from dptune.engines.base import Engine as Engine
from dptune.engines.base import Model as Model
from dptune.engines.checkpoint import Checkpoint as Checkpoint
from dptune.engines.conformance import check_engine as check_engine
from dptune.engines.evaluation import Evaluation as Evaluation
from dptune.engines.executors import Executor as Executor
from dptune.engines.executors import ProcessExecutor as ProcessExecutor
from dptune.engines.executors import SerialExecutor as SerialExecutor
from dptune.engines.language.hugging_face import HuggingFace as HuggingFace
from dptune.engines.linear import LinearEngine as LinearEngine
from dptune.engines.linear import LinearModel as LinearModel
from dptune.engines.modules.lora import LoRA as LoRA
from dptune.engines.modules.mending import fix_module as fix_module
from dptune.engines.modules.module_engine import ModuleEngine as ModuleEngine
from dptune.engines.modules.module_model import ModuleModel as ModuleModel
from dptune.engines.modules.torch_module import TorchModule as TorchModule
from dptune.engines.modules.zeroth_order import ZerothOrder as ZerothOrder
from dptune.engines.per_row import ClippedSum as ClippedSum
from dptune.engines.per_row import batches as batches
from dptune.engines.per_row import descend as descend
from dptune.engines.randomness import Randomness as Randomness
from dptune.engines.registry import engine_named as engine_named
from dptune.engines.registry import register_engine as register_engine
from dptune.engines.traits import Traits as Traits
from dptune.prior import Prior as Prior
