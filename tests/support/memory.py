"""The peak memory of a process."""

from __future__ import annotations

from pathlib import Path


class Process:
    """Measures the memory of a process above that at the creation of this object."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text("5")  # set the peak to the present value
        self._idle = self._peak()

    def _peak(self) -> int:
        status = (self._folder / "status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def above(self) -> int:
        """Return the bytes of the peak above that at the creation."""
        return self._peak() - self._idle
