"""The size from which SQLite writes and reads a value in place."""

from __future__ import annotations

import sqlite3


def _opens_any_row() -> bool:
    """Return whether this Python can open a value in place in any row.

    Python 3.11.2 of Debian 12 only takes row numbers of 31 bits; a data id begins with its partition.
    """
    db = sqlite3.connect(":memory:")
    try:
        db.execute("CREATE TABLE data (id INTEGER PRIMARY KEY, value)")
        db.execute("INSERT INTO data VALUES (1 << 48, zeroblob(1))")
        db.blobopen("data", "value", 1 << 48).close()
    except OverflowError:
        return False
    finally:
        db.close()
    return True


#: From this size on a value is written and read in place, without copying a parameter or result.
STREAMED_BYTES = 4 << 20 if _opens_any_row() else 1 << 31  # greater than any value
