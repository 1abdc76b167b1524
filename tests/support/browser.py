"""A headless Chromium, driven by WebDriver."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from selenium.webdriver import ActionChains, Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service

from tests.support.patience import PATIENCE_SECONDS, wait_until

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    # Nothing leaves the machine.
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-proxy-server"),
)
#: The width of a laptop.
SIZE = (1200, 900)


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is missing: tools/install-debian.sh test")
    return path


@contextmanager
def browser(size: tuple[int, int] = SIZE) -> Iterator[Chrome]:
    """Start a browser with an empty profile, and end it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = _program("chromium")
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = Chrome(options, Service(_program("chromedriver")))
        try:
            driver.set_page_load_timeout(PATIENCE_SECONDS)
            driver.set_script_timeout(PATIENCE_SECONDS)
            yield driver
        finally:
            driver.quit()


def resize(driver: Chrome, width: int, height: int) -> None:
    """Make the page that wide, in pixels of CSS; a window cannot be narrower than 500."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )


def prefer(driver: Chrome, scheme: str) -> None:
    """Prefer ``light`` or ``dark`` colours."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def text(driver: Chrome, selector: str = "body") -> str:
    """Return what a person reads in the elements of a selector, in one step: the page changes itself."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].filter((each) => each.checkVisibility())"
        ".map((each) => each.innerText).join(' ')"
    )
    return str(driver.execute_script(script, selector))


def press(driver: Chrome, selector: str) -> None:
    """Press the first button of a selector, as soon as it is there."""
    script = "const it = document.querySelector(arguments[0]); it?.click(); return it !== null"
    wait_until(lambda: driver.execute_script(script, selector), f"{selector} on the page")


def sign_in(driver: Chrome, name: str, password: str) -> None:
    """Open the dialog and fill it, by keyboard."""
    press(driver, "#session button")
    keys = [name, Keys.TAB, password, Keys.ENTER]
    ActionChains(driver).send_keys(*keys).perform()


def count(driver: Chrome, selector: str) -> int:
    """Return the number of elements."""
    return int(driver.execute_script("return document.querySelectorAll(arguments[0]).length", selector))


def progress(driver: Chrome) -> float:
    """Return how far the first bar of progress is; 0 if there is none."""
    return float(driver.execute_script("return document.querySelector('progress')?.value ?? 0"))


def console(driver: Chrome) -> list[str]:
    """Return what the browser complained about since the last call."""
    return [line["message"] for line in driver.get_log("browser")]  # type: ignore[no-untyped-call]
