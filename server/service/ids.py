"""Names for replies, runs and requests: no two alike, and no secrets.

Each look at the system's random numbers is a system call, during which another thread may take the
interpreter: under load that waits longer than anything else that a request needs on the loop."""

from __future__ import annotations

import random
import secrets

_numbers = random.Random(secrets.randbits(256))


def new_hex(num_bytes: int) -> str:
    """As `secrets.token_hex`, but whoever has seen many can foretell the next: for names that
    give nobody a right."""
    return _numbers.randbytes(num_bytes).hex()
