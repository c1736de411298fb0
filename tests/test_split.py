"""What is left for the final run."""

import math
from pathlib import Path

import dp_accounting
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dptune import Budget, Ledger, accounting, gdp
from dptune.accounting import Sweep, split_budget
from dptune.accounting.split import Stage, price_stages
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.rounding import allowance
from support.ledgers import ROWS

# The paper's five splits of epsilon 1 at delta 1e-5, three trials each.
PAPER = {
    (0.01, 0.05): "0.9927",
    (0.05, 0.1): "0.9684",
    (0.05, 0.2): "0.9030",
    (0.1, 0.2): "0.8840",
    (0.2, 0.3): "0.6933",
}


@pytest.mark.parametrize(("sweeps", "left"), PAPER.items())
def test_the_papers_splits(sweeps: tuple[float, float], left: str, budget: Budget) -> None:
    split = split_budget(budget, [Sweep(3, epsilon) for epsilon in sweeps], score="public")
    assert allowance(split.final.epsilon) == left
    # The same by another road: multipliers of dp-accounting, composed as one Gaussian.
    inverse_squares = [3 / dp_accounting.get_sigma_gaussian(e, budget.delta) ** 2 for e in sweeps]
    whole = 1 / dp_accounting.get_sigma_gaussian(budget.epsilon, budget.delta) ** 2
    sigma = (whole - sum(inverse_squares)) ** -0.5
    by_theirs = dp_accounting.get_epsilon_gaussian(sigma, budget.delta)
    assert split.final.epsilon == pytest.approx(by_theirs, rel=1e-9)


def test_the_papers_last_row_does_not_hold(budget: Budget) -> None:
    """It claims 0.7 for the final run; that brings the total to 1.005."""
    mus = [gdp.mu_from_epsilon(e, budget.delta) for e in [0.2] * 3 + [0.3] * 3 + [0.7]]
    assert gdp.epsilon_from_mu(gdp.compose(mus), budget.delta) == pytest.approx(1.004972, abs=1e-6)


@pytest.mark.parametrize(("share", "noise"), [(0.005, 60.9), (0.005 * (60.92 / 100) ** 2, 100.0)])
def test_scores_cost_their_share_of_budget(share: float, noise: float, budget: Budget) -> None:
    """Half a percent buys noise 60.9; noise 100 leaves epsilon 0.88292"""
    split = split_budget(budget, [Sweep(3, 0.1), Sweep(3, 0.2)], score_share=share)
    assert [score.counts for score in split.scores] == [3, 3]
    assert split.scores[0].noise == pytest.approx(noise, rel=1e-3)
    paid = sum(accounting.price(score).mu_squared for score in split.scores)
    assert paid == pytest.approx(share * budget.mu_squared(), rel=1e-9)
    if noise == 100.0:
        assert split.final.epsilon == pytest.approx(0.88292, abs=1e-5)


def test_a_plan_and_a_study_share_scores_alike(budget: Budget) -> None:
    """Sweeps of three and of seven pay the same for their scores, so the larger has more noise:
    half the share each, over squared sensitivities of 2/3 and 12/7."""
    split = split_budget(budget, [Sweep(3, 0.05), Sweep(7, 0.05)])
    mu = gdp.mu_from_epsilon(0.05, budget.delta)
    stages = [Stage("small", 3, mu * mu), Stage("large", 7, mu * mu)]
    study = price_stages(budget, stages, score_share=0.005)
    assert split.scores == tuple(stage.score for stage in study.sweeps)
    each = 0.0025 * budget.mu_squared()
    by_hand = [math.sqrt(2 / 3 / each), math.sqrt(12 / 7 / each)]
    assert [score.noise for score in split.scores] == pytest.approx(by_hand, rel=1e-12)
    assert split.final.mu_squared == pytest.approx(study.final.mu_squared, rel=2e-12)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 300.0])
def test_a_whole_budget_reads_as_the_whole(epsilon: float) -> None:
    left = split_budget(Budget(epsilon, 1e-5), []).final.epsilon
    assert allowance(left) == f"{epsilon:.4f}"


sweeps = st.lists(
    st.builds(Sweep, st.integers(1, 20), st.floats(1e-3, 1.0)), min_size=0, max_size=5
)


@given(
    sweeps=sweeps,
    epsilon=st.floats(0.01, 20),
    delta=st.floats(1e-12, 1e-2),
    score=st.sampled_from(["noisy", "public"]),
    share=st.sampled_from([0.005, 0.2]),
)
def test_a_split_never_exceeds_its_budget_and_wastes_nothing(
    sweeps: list[Sweep], epsilon: float, delta: float, score: str, share: float
) -> None:
    budget = Budget(epsilon, delta)
    try:
        split = split_budget(budget, sweeps, score=score, score_share=share)
    except BudgetExceeded:
        assume(False)
    assert split.spent.mu_squared <= budget.mu_squared()
    one_by_one = [slot.mu_squared for slot in split.slots for _ in range(slot.count)]
    assert math.fsum(one_by_one) <= budget.mu_squared()
    assert accounting.epsilon(split.spent, delta) <= epsilon * (1 + 1e-9)
    assert split.spent.mu_squared >= budget.mu_squared() * (1 - 1e-12)
    assert split.guarantee().epsilon == pytest.approx(epsilon, rel=1e-9)


def test_a_search_that_uses_everything_is_refused(budget: Budget) -> None:
    with pytest.raises(BudgetExceeded, match=r"epsilon 1\.\d+ of 1 .* fewer or cheaper trials"):
        split_budget(budget, [Sweep(10, 0.5)])


def test_without_sweeps_the_final_run_gets_everything(budget: Budget) -> None:
    split = split_budget(budget, [], score_share=0.005)
    assert split.final.mu_squared == pytest.approx(budget.mu_squared(), rel=1e-14)
    assert split.scores == ()


def test_a_sweep_of_one_trial_has_nothing_to_compare(budget: Budget) -> None:
    assert split_budget(budget, [Sweep(1, 0.1)], score_share=0.005).scores == ()


def test_the_statement_says_who_pays_for_selection(budget: Budget) -> None:
    paid = split_budget(budget, [Sweep(3, 0.1)], score_share=0.005).guarantee()
    public = split_budget(budget, [Sweep(3, 0.1)], score="public").guarantee()
    neither = split_budget(budget, [], score="noisy").guarantee()
    assert "their noisy scores" in paid.releases
    assert "the rows that score the trials" in public.public_facts
    assert "the rows that score the trials" not in paid.public_facts
    assert any("no search" in note for note in neither.caveats)
    assert paid.covers_search and paid.covers_selection and public.covers_selection


@pytest.mark.parametrize(("trials", "epsilon"), [(0, 0.1), (2.5, 0.1), (3, 0), (3, -1)])
def test_invalid_sweep_is_refused(trials: int, epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        Sweep(trials, epsilon)


def test_invalid_score_share_is_refused(budget: Budget) -> None:
    with pytest.raises(InvalidInput, match="score_share must"):
        split_budget(budget, [Sweep(3, 0.1)], score_share=1.0)


def test_a_ledger_without_slack_has_room_for_the_whole_plan(tmp_path: Path) -> None:
    budget = Budget(1.0, 1e-5)
    planned = split_budget(budget, [Sweep(3, 0.1), Sweep(3, 0.2)])
    runs = [
        ("run", accounting.calibrate_full_batch(mu=slot.mu, steps=100))
        for slot in planned.slots
        for _ in range(slot.count)
    ]
    opened = {"dataset": "patients", "fingerprint": ROWS}
    ledger = Ledger.create(str(tmp_path / "all.db"), budget, **opened, slack=0.0)
    assert len(ledger.reserve_all(runs, fingerprint=ROWS)) == 9
    with pytest.raises(BudgetExceeded):
        Ledger.create(str(tmp_path / "less.db"), budget, **opened).reserve_all(
            runs, fingerprint=ROWS
        )
