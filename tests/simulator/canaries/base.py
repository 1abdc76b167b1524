"""What a canary is, and how it is planted."""

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

    ``slip``: what the programmer got wrong. ``oracle``: who notices, and how. ``seeds``: so many,
    from 0, are enough to find it with ``options``, which are fields of ``run.Options``: a run that
    is short, and rich in what the bug needs.
    """

    name: str
    slip: str
    oracle: str
    patches: Callable[[], list[Patch]]
    seeds: int
    options: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def plant(patches: list[Patch]) -> Iterator[None]:
    """With the patches inside the block."""
    originals = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in patches]
    for owner, attribute, wrong in patches:
        setattr(owner, attribute, wrong)
    try:
        yield
    finally:
        for owner, attribute, original in reversed(originals):
            setattr(owner, attribute, original)


#: Options for runs with rebases in conflict: who holds what another one waits for often ends without a
#: commit, so that nothing else conflicts.
DEADLOCKS = {
    "workloads": ("bank", "deadlocks", "skew"),
    "faults": ("kill-client",),
    "disk": "memory",
    "storages": 2,
    "seconds": 5.0,
}
