"""Make the pictures of docs/web-page.md: the page of a cluster to which things happen.

    python tools/screenshots.py [FOLDER]        # default: docs/images

Needs what ``make test`` installs. Takes a minute.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from selenium.webdriver import Chrome

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.browser import browser, prefer, press, progress, resize, sign_in, text  # noqa: E402
from tests.support.patience import wait_until  # noqa: E402
from tests.support.watched import NAME, PASSWORD, watched  # noqa: E402

WIDTH = 1000


def _shoot(driver: Chrome, folder: Path, name: str, last: str, width: int = WIDTH) -> None:
    """Photograph the page down to the end of the section ``last``."""
    resize(driver, width, 800)
    bottom = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom + scrollY"
    driver.execute_script("scrollTo(0, 0)")
    resize(driver, width, int(driver.execute_script(bottom, last)) + 16)
    path = folder / f"page-{name}.png"
    driver.save_screenshot(str(path))
    print(f"{path}: {path.stat().st_size // 1000} kB")


def _shown(driver: Chrome, words: str) -> None:
    wait_until(lambda: words in text(driver), words)


def main(folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        watched(Path(scratch)) as world,
        browser() as driver,
    ):
        driver.get(world.url)
        _shown(driver, "at most")  # three samples of the rate
        _shoot(driver, folder, "healthy", "#disks")
        prefer(driver, "dark")
        _shoot(driver, folder, "narrow", "#cells", width=360)
        prefer(driver, "light")
        world.lose_storage()
        _shown(driver, "fewer copies than wanted")
        _shoot(driver, folder, "degraded", "#cells")
        world.bring_back()
        _shown(driver, "No problem.")
        with world.operation():
            _shown(driver, "Operation ")
            wait_until(lambda: progress(driver) > 0, "a step is done")
            _shoot(driver, folder, "operation", "#operations")
            sign_in(driver, NAME, PASSWORD)
            press(driver, "#operations button")
            _shown(driver, "each step that was begun is undone")
            _shoot(driver, folder, "command", "dialog")
            press(driver, "dialog button:last-child")
            press(driver, "#session button")  # sign out
        wait_until(lambda: not text(driver, "#operations"), "the operation has ended")
        _shown(driver, "No problem.")
        world.lose_primary()
        _shown(driver, "The primary master is away")
        _shoot(driver, folder, "away", "#cells")


if __name__ == "__main__":
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    images = ROOT / "docs" / "images"
    parser.add_argument("folder", nargs="?", type=Path, default=images, metavar="FOLDER")
    main(parser.parse_args().folder)
