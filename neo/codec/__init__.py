"""ZODB records read without importing the application's classes, for pipelines (``SPARK``).

* ``record``: bytes → class name, references, state, or an error text
* ``state``: the state → JSON, within a budget
* ``buckets``: the states of BTrees, flattened
* ``stubs``: what stands in for classes; nothing is imported, nothing runs
* ``opcodes``: the pickle's bytes, refused where they would exhaust memory or stack
* ``weight``: what its objects would take, refused where that is much more than true ones do
"""

from neo.codec.record import Record, Reference, class_of, decode
from neo.codec.state import Budget, BudgetExceeded, state_json, value_json

__all__ = [
    "Budget",
    "BudgetExceeded",
    "Record",
    "Reference",
    "class_of",
    "decode",
    "state_json",
    "value_json",
]
