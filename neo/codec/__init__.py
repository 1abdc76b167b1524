"""Read ZODB records without importing the application's classes (docs/spark.md).

* ``record``: bytes → class name, references, state, or an error text
* ``state``: the state → JSON, within a budget
* ``buckets``: flattened states of BTrees
* ``stubs``: substitutes for classes; nothing is imported, no code runs
* ``opcodes``: refuse pickles that would exhaust memory or stack
* ``weight``: refuse records whose objects would take far more memory than genuine ones
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
