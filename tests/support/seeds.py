"""Seeds of the tests that draw at random.

The suite draws the same each time and on each machine. The search for bugs, ``make soak``, gives other
seeds through variables of the environment.
"""

from __future__ import annotations

import os

#: Any number would do. It stays the same, so that a run of the suite that fails can be repeated.
FIXED = 20261128


def seed(name: str, fixed: int = FIXED) -> int:
    """Return the seed of a test: ``NEO_<name>_SEED``, or ``fixed``. Print the variable, so that the
    output of a failed test says how it is repeated."""
    variable = f"NEO_{name}_SEED"
    chosen = int(os.environ.get(variable) or fixed)
    print(f"{variable}={chosen}")
    return chosen
