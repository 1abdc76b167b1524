"""The list of members. It changes through the log itself, one complete list per change."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from neo.transactor.codec import CodecError, pack, typed, unpack

#: The limit of specification 20.16. Indices have 16 bits, and are never reused.
INDEX_MAX = 16000

Address = tuple[str, int]


def is_host(text: str) -> bool:
    """Return whether the text can be resolved: a numeric address, or a name with valid labels."""
    try:
        return bool(text.encode("idna")) and text.isprintable() and not re.search(r"[\s\[\]]", text)
    except UnicodeError:
        return False


class MembershipError(Exception):
    """A change of the members is invalid; the message gives the reason."""


class Member(NamedTuple):
    node: int
    name: str
    #: Host and port at which peers reach it.
    address: Address


class Members(NamedTuple):
    """Members in the order of their indices. ``next_index``: the index of the next new member."""

    all: tuple[Member, ...]
    next_index: int

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(member.node for member in self.all)

    def named(self, name: str) -> Member | None:
        return next((member for member in self.all if member.name == name), None)

    def at(self, node: int) -> Member | None:
        return next((member for member in self.all if member.node == node), None)

    # -- changes: each returns a new list, or raises MembershipError -------------------------------

    def added(self, name: str, address: Address) -> Members:
        if self.named(name):
            raise MembershipError(f"{name} is a member already")
        if self.next_index >= INDEX_MAX:
            raise MembershipError(f"{name} cannot be added: all {INDEX_MAX} indices were used")
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
        return pack([self.next_index, self.all])

    @classmethod
    def decode(cls, data: bytes) -> Members:
        """Decode a list of members. Raises CodecError."""
        try:
            next_index, members = typed(tuple[int, tuple[Member, ...]], unpack(data))
        except CodecError as e:
            raise CodecError(f"not a list of members: {e}") from None
        return cls(members, next_index)


def first_members(peers: Iterable[tuple[str, Address]]) -> Members:
    """Return the configured members, sorted by name, so that all nodes agree on indices."""
    members = tuple(Member(i, name, address) for i, (name, address) in enumerate(sorted(peers)))
    return Members(members, len(members))
