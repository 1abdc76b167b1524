"""The web page of an invented cluster: by keyboard, on a telephone, with words that are no HTML."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By

from tests.page.scripted import EVIL, Invented, invented, served
from tests.support.browser import browser, console, prefer, resize
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
    element = driver.switch_to.active_element
    return element.get_attribute("aria-label") or element.get_attribute("id") or element.text


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
        words = driver.find_element(By.ID, "cell-words")
        assert words.text == focused(driver)
        press(driver, Keys.END, Keys.ARROW_UP)
        assert focused(driver) == "S1, partition 11: damaged"
        # The table changes, and the focus stays.
        changed = invented()
        changed["status"]["partitions"][11]["cells"]["S1"] = "UP_TO_DATE"
        teller.data = changed
        wait_until(lambda: focused(driver) == "S1, partition 11: up to date", "the cell changes")
        tab_to(driver, "The table in words")
        press(driver, Keys.ENTER)
        details = driver.find_element(By.CSS_SELECTOR, "#cells details")
        assert "S2, DOWN: 12 up to date" in details.text and "6 have none: 1, 2, " not in details.text


def test_what_nodes_say_is_text_and_nothing_is_loaded_from_elsewhere(driver: Chrome) -> None:
    console(driver)
    with served(Invented(invented())) as url:
        opened(driver, url)
        assert EVIL in driver.find_element(By.ID, "nodes").text
        assert EVIL in driver.find_element(By.ID, "operations").text
        assert EVIL in driver.find_element(By.ID, "backups").text
        assert not driver.find_elements(By.TAG_NAME, "img")
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
        cells = driver.find_elements(By.CSS_SELECTOR, ".row:first-child .cell")
        assert len(cells) == 63 and {cell.text for cell in cells} == {"C"}, "the worst of 16"
        assert "A square is 16 partitions" in driver.find_element(By.ID, "cells").text
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
            return int(driver.find_element(By.ID, "age").text.partition(" ")[0])

        wait_until(lambda: age() >= 1, "the answer to what was asked before")
        before = teller.asked
        wait_until(lambda: age() >= 4, "twice the time after which it would ask again")
        assert teller.asked == before
        driver.execute_script(hide, False)
        wait_until(lambda: teller.asked > before, "it asks when it is seen again")
