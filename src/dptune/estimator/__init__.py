"""scikit-learn's fit and predict over `tune`."""

from dptune.estimator.estimator import EXPECTED_FAILED_CHECKS as EXPECTED_FAILED_CHECKS
from dptune.estimator.estimator import DPLinearClassifier as DPLinearClassifier
