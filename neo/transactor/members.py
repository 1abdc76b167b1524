"""Who takes part: a list that changes through the log itself, one whole list per change."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgpack

#: The page's theoretical limit; indices are 16-bit numbers that are never used again.
INDEX_MAX = 16000

Address = tuple[str, int]


def is_host(text: str) -> bool:
    """Whether it can be looked up: a numeric address, or a name with proper labels."""
    try:
        return bool(text.encode("idna")) and text.isprintable() and not re.search(r"[\s\[\]]", text)
    except UnicodeError:
        return False


class MembershipError(Exception):
    """A change that makes no sense; the message says why."""


class Member(NamedTuple):
    node: int
    name: str
    #: Host and port where peers reach it.
    address: Address


class Members(NamedTuple):
    """In the order of their indices. ``next_index`` is that of the next one who joins."""

    all: tuple[Member, ...]
    next_index: int

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(member.node for member in self.all)

    def named(self, name: str) -> Member | None:
        return next((member for member in self.all if member.name == name), None)

    def at(self, node: int) -> Member | None:
        return next((member for member in self.all if member.node == node), None)

    # -- changes: each returns another list; raises MembershipError ----------------------------------

    def added(self, name: str, address: Address) -> Members:
        if self.named(name):
            raise MembershipError(f"{name} is a member already")
        if self.next_index >= INDEX_MAX:
            raise MembershipError(f"all {INDEX_MAX} indices were used")
        member = Member(self.next_index, name, address)
        return Members((*self.all, member), self.next_index + 1)

    def removed(self, name: str) -> Members:
        self._known(name)
        if len(self.all) == 1:
            raise MembershipError(f"{name} is the only member left")
        return self._replace(all=tuple(member for member in self.all if member.name != name))

    def moved(self, name: str, address: Address) -> Members:
        self._known(name)
        return self._replace(
            all=tuple(m._replace(address=address) if m.name == name else m for m in self.all)
        )

    def _known(self, name: str) -> None:
        if not self.named(name):
            known = ", ".join(member.name for member in self.all)
            raise MembershipError(f"{name} is not a member; members are {known}")

    # -- as data of a transaction ------------------------------------------------------------------

    def encode(self) -> bytes:
        packed: bytes = msgpack.packb([self.next_index, self.all])
        return packed

    @classmethod
    def decode(cls, data: bytes) -> Members:
        """Raises ValueError."""
        try:
            next_index, members = msgpack.unpackb(data)
            return cls(
                tuple(Member(node, name, (host, port)) for node, name, (host, port) in members),
                next_index,
            )
        except (TypeError, ValueError, msgpack.UnpackException) as e:
            raise ValueError(f"not a list of members: {e}") from None


def first_members(peers: Iterable[tuple[str, Address]]) -> Members:
    """Those of the configuration file, in the order of their names, whatever its order was."""
    members = tuple(Member(i, name, address) for i, (name, address) in enumerate(sorted(peers)))
    return Members(members, len(members))
