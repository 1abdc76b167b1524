"""Planted bugs: what one is, and how it is planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

#: (owner, attribute, wrong value).
Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class Canary:
    """A planted bug: one piece of product code replaced by a wrong one.

    ``slip``: the error of the programmer. ``oracle``: the oracle that finds it, and how. ``seeds``: so
    many seeds, from ``first`` on, suffice to find it with ``options``, which are fields of
    ``run.Options``: for a short run with many occasions for the bug. ``first`` is not 0 for a bug that
    few seeds find: then it is one that did, so that the hunt is short.
    """

    name: str
    slip: str
    oracle: str
    patches: Callable[[], list[Patch]]
    seeds: int
    options: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0


@contextmanager
def plant(patches: list[Patch]) -> Iterator[None]:
    """Inside the block, apply the patches."""
    originals = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in patches]
    for owner, attribute, wrong in patches:
        setattr(owner, attribute, wrong)
    try:
        yield
    finally:
        for owner, attribute, original in reversed(originals):
            setattr(owner, attribute, original)


#: Options for runs with conflicts during rebases. The holder of a lock that another transaction waits
#: for often ends without a commit, so that nothing else conflicts.
DEADLOCKS = {
    "workloads": ("bank", "deadlocks", "skew"),
    "faults": ("kill-client",),
    "disk": "memory",
    "storages": 2,
    "seconds": 5.0,
}
