"""The order in which garbage may be deleted.

An application that follows a reference checks only the referred object before it uses that object again.
So no object may be missing while another one, garbage or not, refers to it. An object is deleted after
all objects that refer to it, or together with them if their references form a circle.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from BTrees.QOBTree import QOBTree

from neo.protocol.ids import p64, u64

#: The place of an object whose component is known: after all others.
_PLACED = 1 << 62


class Garbage:
    """A graph of objects and their references. For one thread.

    It may hold millions of objects: each is one bytes object, its serial and the oids that it refers to.
    """

    def __init__(self) -> None:
        self._objects: QOBTree = QOBTree()

    def add(self, oid: bytes, serial: bytes, references: Iterable[bytes]) -> None:
        """Add an object. ``references``: oids, of garbage and of other objects."""
        self._objects[u64(oid)] = serial + b"".join(references)

    def components(self) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield groups of (oid, serial) to delete together, each before the groups that it refers to."""
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
        """Return all oids, referred ones first, and the index at which each strongly connected component
        ends. Gabow's path-based algorithm: a depth-first search that joins components on its path."""
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
                    # All objects on the path between the two are one circle: join them.
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
