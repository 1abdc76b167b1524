"""Garbage, and the order in which it may be deleted.

Whoever comes to an object by a reference may check that object alone before he takes it back into use.
So none may be missing as long as another one, garbage or not, refers to it: an object is deleted after
all that refer to it, or together with them, where they refer to each other in a circle.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from BTrees.QOBTree import QOBTree

from neo.protocol.ids import p64, u64

#: The place of an object whose component is known: behind all others.
_PLACED = 1 << 62


class Garbage:
    """Objects, with what they refer to. For one thread.

    There may be millions: an object is its serial and the oids that it refers to, in one bytes object.
    """

    def __init__(self) -> None:
        self._objects: QOBTree = QOBTree()

    def add(self, oid: bytes, serial: bytes, references: Iterable[bytes]) -> None:
        """``references``: oids, of garbage and of other objects."""
        self._objects[u64(oid)] = serial + b"".join(references)

    def components(self) -> Iterator[list[tuple[bytes, bytes]]]:
        """Groups of (oid, serial) that must be deleted together, referrers before what they refer to."""
        oids, ends = self._sorted()
        end = len(oids)
        for start in (*reversed(ends[:-1]), 0) if ends else ():
            yield [(p64(oid), self._objects[oid][:8]) for oid in oids[start:end]]
            end = start

    def _references(self, oid: int) -> Iterator[int]:
        packed: bytes = self._objects[oid]
        for start in range(8, len(packed), 8):
            referred = u64(packed[start : start + 8])
            if referred in self._objects:
                yield referred

    def _sorted(self) -> tuple[array[int], array[int]]:
        """All oids, those that are referred to first, and where each strongly connected component
        ends among them. Gabow's algorithm: a walk in depth that joins what is on its path."""
        oids, ends = array("Q"), array("Q")
        places: dict[int, int] = {}
        for root in self._objects:
            if root in places:
                continue
            path, found, heads = [(root, self._references(root))], [root], [root]
            places[root] = 0
            while path:
                oid, references = path[-1]
                for referred in references:
                    place = places.get(referred)
                    if place is None:
                        places[referred] = len(found)
                        found.append(referred)
                        heads.append(referred)
                        path.append((referred, self._references(referred)))
                        break
                    # What is on the path between the two, and was not joined yet, is one circle.
                    while places[heads[-1]] > place:
                        heads.pop()
                else:
                    path.pop()
                    if heads[-1] == oid:
                        heads.pop()
                        component = found[places[oid] :]
                        del found[places[oid] :]
                        places.update(dict.fromkeys(component, _PLACED))
                        oids.extend(component)
                        ends.append(len(oids))
        return oids, ends
