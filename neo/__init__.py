"""NEO, a distributed storage for ZODB."""

#: Of all programs of this tree. Storage format and protocol have versions of their own.
__version__ = "0.1.0"
