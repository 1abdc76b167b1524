"""What holds for all tests."""

from __future__ import annotations

import hypothesis

# A machine that runs other tests beside this one is slow now and then; no test is timed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
