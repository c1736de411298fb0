"""scikit-learn's fit and predict over `tune`."""

from dptune.estimator.estimator import EXPECTED_FAILED_CHECKS as EXPECTED_FAILED_CHECKS
from dptune.estimator.estimator import DPLinearClassifier as DPLinearClassifier
from dptune.estimator.regressor import (
    EXPECTED_FAILED_CHECKS_OF_VALUES as EXPECTED_FAILED_CHECKS_OF_VALUES,
)
from dptune.estimator.regressor import DPLinearRegressor as DPLinearRegressor
