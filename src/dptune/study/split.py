"""How a study's budget is split, for people: one line a kind of payment, in their order."""

from dataclasses import replace

from dptune import accounting
from dptune.accounting.split import Slot
from dptune.privacy import Event, Price
from dptune.study.outline import CHECK, Outline
from dptune.study.recipe import FINER_MEAN


def slots(planned: Outline) -> tuple[Slot, ...]:
    """What is paid for; each slot's epsilon is that of one of its runs."""

    def slot(purpose: str, price: Price, count: int = 1) -> Slot:
        epsilon = accounting.epsilon(price, planned.config.budget.delta)
        return Slot(purpose, count, epsilon, price.mu_squared)

    def event(purpose: str, paid: Event) -> Slot:
        return slot(purpose, planned.price_of(paid))

    schedule, final, listed = planned.schedule, planned.final, []
    if schedule.sealed:
        # Alone, it is what the budget was calibrated for; its price in company says nothing.
        budget = planned.config.budget
        bound = accounting.sealed_bound(schedule.sealed.event, budget.delta).epsilon
        epsilon = min(bound, budget.epsilon)
        return (Slot(schedule.sealed.name, 1, epsilon, budget.mu_squared(), alone=True),)
    listed += [event(label, paid) for label, paid in planned.preparing.items()]
    if planned.gave_a_leg:
        listed.append(event(FINER_MEAN, planned.finer_mean))
    if schedule.census:
        listed.append(event("census", schedule.census))
    for sweep in schedule.compared:
        run = Price(sweep.mu_squared, planned.slack_of_a_run)
        if planned.holds_out and sweep.score:
            both = dict(planned.payments)[sweep.name]
            listed.append(event(f"{sweep.name} and its scores", both))
            continue
        listed.append(slot(sweep.name, run, sweep.trials))
        if sweep.score:
            listed.append(event(f"scores of {sweep.name}", sweep.score))
    if final.trials == 1:
        listed.append(slot(final.name, Price(final.mu_squared, planned.slack_of_a_run)))
    if schedule.check:
        listed.append(event(CHECK, schedule.check))
    return tuple(listed)


def foreseen(planned: Outline) -> tuple[Slot, ...]:
    """The same before rows are read: what pays for a finer mean, or for a leg of the final run, is
    listed by itself."""
    listed = slots(replace(planned, gave_a_leg=True) if planned.refines else planned)
    either = {FINER_MEAN: f"{FINER_MEAN} or leg 1"}
    return tuple(replace(each, purpose=either.get(each.purpose, each.purpose)) for each in listed)
