"""How a study's budget is split, for people: one line a kind of payment, in their order."""

from dptune import accounting
from dptune.accounting.split import Slot
from dptune.privacy import Event, Price
from dptune.study.outline import CHECK, Outline


def slots(planned: Outline) -> tuple[Slot, ...]:
    """What is paid for; each slot's epsilon is that of one of its runs."""

    def slot(purpose: str, price: Price, count: int = 1) -> Slot:
        epsilon = accounting.epsilon(price, planned.config.budget.delta)
        return Slot(purpose, count, epsilon, price.mu_squared)

    def event(purpose: str, paid: Event) -> Slot:
        return slot(purpose, planned.price_of(paid))

    schedule, final, listed = planned.schedule, planned.schedule.final, []
    if schedule.sealed:
        # Alone, it is what the budget was calibrated for; its price in company says nothing.
        budget = planned.config.budget
        bound = accounting.sealed_bound(schedule.sealed.event, budget.delta).epsilon
        epsilon = min(bound, budget.epsilon)
        return (Slot(schedule.sealed.name, 1, epsilon, budget.mu_squared(), alone=True),)
    listed += [event(label, paid) for label, paid in planned.preparing.items()]
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
