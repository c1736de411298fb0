"""Noise that repeats itself."""

import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def repeated_noise() -> Iterator[None]:
    """Noise that is the same every time, where the outcome hangs on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbits", random.Random(0).getrandbits)
        yield
