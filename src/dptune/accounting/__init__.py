"""From events to prices, from budgets to noise, and what may be promised for what was spent."""

from dptune.accounting.bounds import sealed_bound as sealed_bound
from dptune.accounting.budget import Budget as Budget
from dptune.accounting.calibration import calibrate_direct as calibrate_direct
from dptune.accounting.calibration import calibrate_full_batch as calibrate_full_batch
from dptune.accounting.calibration import calibrate_sampled as calibrate_sampled
from dptune.accounting.calibration import calibrate_sealed as calibrate_sealed
from dptune.accounting.calibration import central_limit_noise as central_limit_noise
from dptune.accounting.composition import direct_epsilon as direct_epsilon
from dptune.accounting.guarantees import ONE_PERSON as ONE_PERSON
from dptune.accounting.guarantees import ONE_PICTURE as ONE_PICTURE
from dptune.accounting.guarantees import ONE_ROW as ONE_ROW
from dptune.accounting.guarantees import ONE_TEXT as ONE_TEXT
from dptune.accounting.guarantees import Guarantee as Guarantee
from dptune.accounting.guarantees import guarantee as guarantee
from dptune.accounting.pricing import default_slack as default_slack
from dptune.accounting.pricing import epsilon as epsilon
from dptune.accounting.pricing import epsilon_of as epsilon_of
from dptune.accounting.pricing import fits as fits
from dptune.accounting.pricing import needs_slack as needs_slack
from dptune.accounting.pricing import price as price
from dptune.accounting.pricing import slack_of_one as slack_of_one
from dptune.accounting.pricing import slack_set_aside as slack_set_aside
from dptune.accounting.renyi import rdp_epsilon as rdp_epsilon
from dptune.accounting.replace_one import replace_one_epsilon as replace_one_epsilon
from dptune.accounting.split import Sweep as Sweep
from dptune.accounting.split import split_budget as split_budget
