"""The web page of an invented cluster: by keyboard, on a telephone, with words that are no HTML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By

from neo.admin.page.commanding import Wanted
from neo.admin.page.sessions import IDLE_SECONDS
from tests.page.scripted import EVIL, PASSWORD, Invented, Signing, invented, served
from tests.support.browser import browser, console, prefer, resize, sign_in, text
from tests.support.patience import wait_until


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    with browser() as driver:
        yield driver


def opened(driver: Chrome, url: str) -> None:
    driver.get(url)
    wait_until(lambda: driver.find_elements(By.CSS_SELECTOR, ".grid"), "the page shows the cluster")


def press(driver: Chrome, *keys: str) -> None:
    for key in keys:
        ActionChains(driver).send_keys(key).perform()


def focused(driver: Chrome) -> str:
    """Return the name of what has the focus."""
    script = "const it = document.activeElement; return it.ariaLabel || it.id || it.innerText"
    return str(driver.execute_script(script))


def tab_to(driver: Chrome, name: str) -> None:
    for _ in range(20):
        press(driver, Keys.TAB)
        if focused(driver).startswith(name):
            return
    raise AssertionError(f"{name!r} is not reached by Tab")


def test_everything_is_reached_by_keyboard_and_stays_while_the_page_lives(driver: Chrome) -> None:
    teller = Invented(invented())
    with served(teller) as url:
        opened(driver, url)
        press(driver, Keys.TAB)
        assert focused(driver) == "Go to the problems"
        ring = "return getComputedStyle(document.activeElement).outlineStyle"
        assert driver.execute_script(ring) == "solid", "the focus is seen"
        press(driver, Keys.ENTER)
        assert focused(driver) == "problems"
        tab_to(driver, "S1, partition 0: up to date")
        press(driver, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
        assert focused(driver) == "S2 (DOWN), partition 1: up to date"
        assert text(driver, "#cell-words") == focused(driver)
        press(driver, Keys.END, Keys.ARROW_UP)
        assert focused(driver) == "S1, partition 11: damaged"
        # The table changes, and the focus stays.
        changed = invented()
        changed["status"]["partitions"][11]["cells"]["S1"] = "UP_TO_DATE"
        teller.data = changed
        wait_until(lambda: focused(driver) == "S1, partition 11: up to date", "the cell changes")
        tab_to(driver, "The table in words")
        press(driver, Keys.ENTER)
        words = text(driver, "#cells details")
        assert "S2, DOWN: 12 up to date" in words and "5 have none: 1, 3, 5, 7, 9." in words


def test_commands_are_given_by_keyboard(driver: Chrome, tmp_path: Path) -> None:
    signing = Signing(tmp_path)
    with served(Invented(invented()), signing.access) as url:
        opened(driver, url)
        assert not driver.find_elements(By.CSS_SELECTOR, "main button")
        tab_to(driver, "Sign in…")
        press(driver, Keys.ENTER)
        assert focused(driver) == "name" and text(driver, "dialog label") == "Name Password"
        press(driver, Keys.ESCAPE)
        wait_until(lambda: focused(driver) == "Sign in…", "the focus is where it was")
        sign_in(driver, "ada", "not hers")
        wait_until(lambda: text(driver, "dialog [role=alert]") == "wrong name or password", "a refusal")
        assert focused(driver) == "password"
        press(driver, *PASSWORD, Keys.ENTER)
        wait_until(lambda: "signed in: ada" in text(driver, "#session"), "a session")
        # A session outlives the page, and its token is not in the cookie.
        driver.refresh()
        wait_until(lambda: "signed in: ada" in text(driver, "#session"), "the same session")
        assert driver.execute_script("return document.cookie") == ""
        tab_to(driver, "Abort… (abort 3)")
        press(driver, Keys.ENTER)
        wait_until(lambda: "It happens." in text(driver, "dialog"), "what will happen")
        assert focused(driver) == "Cancel", "nothing happens by accident"
        ActionChains(driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
        assert focused(driver) == "Abort the operation"
        press(driver, Keys.ENTER)
        wait_until(lambda: "done it" in text(driver, "dialog pre"), "the result")
        assert signing.commander.done == [Wanted("abort", "3")]
        press(driver, Keys.ENTER)
        wait_until(lambda: focused(driver) == "Abort… (abort 3)", "the focus is where it was")
        signing.now += IDLE_SECONDS
        press(driver, Keys.ENTER)
        wait_until(lambda: "not signed in" in text(driver, "dialog .failed"), "the end of the session")
        press(driver, Keys.ESCAPE)
        wait_until(lambda: "Sign in…" in text(driver, "#session"), "a page without a session")
        assert not driver.find_elements(By.CSS_SELECTOR, "main button")


def test_what_nodes_say_is_text_and_nothing_is_loaded_from_elsewhere(driver: Chrome) -> None:
    console(driver)
    with served(Invented(invented())) as url:
        opened(driver, url)
        assert all(EVIL in text(driver, part) for part in ("#nodes", "#operations", "#backups"))
        assert not driver.find_elements(By.TAG_NAME, "img") and "null" not in text(driver)
        assert driver.title == "(4) RUNNING – shop – NEO"
        loaded = "return performance.getEntriesByType('resource').map((each) => each.name)"
        assert all(name.startswith(url) for name in driver.execute_script(loaded))
        # A script in the page would not run.
        driver.execute_script(
            "const s = document.createElement('script'); s.textContent = 'document.title = 1';"
            "document.body.append(s)"
        )
        assert driver.title.startswith("(4)")
        (refused,) = console(driver)
        assert "Content Security Policy" in refused


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_shows_all_of_it(driver: Chrome, scheme: str) -> None:
    with served(Invented(invented(partitions=1000))) as url:
        resize(driver, 360, 800)
        prefer(driver, scheme)
        opened(driver, url)
        wide = "return document.documentElement.scrollWidth"
        assert driver.execute_script(wide) == 360, "nothing is wider than the page"
        assert text(driver, ".row:first-child .cell").split() == ["C"] * 63, "the worst of 16"
        assert "A square is 16 partitions" in text(driver, "#cells")
        back = "return getComputedStyle(document.body).backgroundColor"
        red = int(driver.execute_script(back).partition("(")[2].partition(",")[0])
        assert (red > 128) == (scheme == "light")


def test_a_hidden_page_asks_nothing(driver: Chrome) -> None:
    hide = (
        "Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'));"
    )
    teller = Invented(invented())
    with served(teller) as url:
        opened(driver, url)
        driver.execute_script(hide, True)

        def age() -> int:
            return int(text(driver, "#age").partition(" ")[0])

        wait_until(lambda: age() >= 1, "the answer to what was asked before")
        before = teller.asked
        wait_until(lambda: age() >= 4, "twice the time after which it would ask again")
        assert teller.asked == before
        driver.execute_script(hide, False)
        wait_until(lambda: teller.asked > before, "it asks when it is seen again")
