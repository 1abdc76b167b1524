"""How fast the writers of these tests write.

Writers that never pause take the processors from the cluster that is tested, and the suite's time: a test
waits for what the cluster does, not for a number of commits. The search for bugs lets them run at full
speed.
"""

from __future__ import annotations

import os

#: Pause of a writer between two transactions.
PAUSE_SECONDS = float(os.environ.get("NEO_PAUSE_SECONDS", "0.01"))
