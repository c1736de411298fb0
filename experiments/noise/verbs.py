"""`python -m experiments last-bits`."""

from dptune.cli import screen
from dptune.cli.parameters import Device, TrainingDevice


def last_bits(device: TrainingDevice = Device.cpu) -> None:
    """Time noise that hides the last bits of sums; on a GPU, also mount the attack on pairs."""
    import torch

    from experiments.noise.last_bits import attack, costs

    with screen.progress() as report:
        costs(torch.device(device.value), report)
        if device is not Device.cpu:
            attack(torch.device(device.value), report)
