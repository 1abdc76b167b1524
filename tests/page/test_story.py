"""The web page of a real cluster, in a real browser, while things happen to the cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from selenium.webdriver import Chrome

from tests.support.browser import browser, console, count, press, progress, sign_in, text
from tests.support.patience import wait_until
from tests.support.watched import NAME, PASSWORD, Watched, watched

Reads = Callable[[str, str], None]


def abort_operation(driver: Chrome, reads: Reads) -> None:
    sign_in(driver, NAME, PASSWORD)
    reads("signed in: ada", "#session")
    press(driver, "#operations button")
    reads("each step that was begun is undone", "dialog")
    press(driver, "dialog .yes")
    reads("Done.", "dialog .good")
    press(driver, "dialog button")


def end_transaction(driver: Chrome, world: Watched, reads: Reads) -> None:
    with world.blocked() as (ttid, waiter):
        press(driver, "#transactions button")
        reads("is aborted, and nothing of it is stored", "dialog")
        assert f"neoctl end {ttid}" in text(driver, "dialog code")
        press(driver, "dialog .yes")
        reads("its locks are released", "dialog pre")
        assert waiter.stdout is not None and len(waiter.stdout.readline().strip()) == 16
    press(driver, "dialog button")
    assert f"ada from 127.0.0.1 commands: 'neoctl end {ttid}'" in world.log()
    wait_until(lambda: not text(driver, "#transactions"), "the transaction has ended")
    press(driver, "#cells button")
    reads("the partitions are balanced", "dialog .failed")
    press(driver, "dialog button")


def test_page_says_what_happens_and_what_to_do(tmp_path: Path) -> None:
    with watched(tmp_path) as world, browser() as driver:

        def reads(words: str, selector: str = "body") -> None:
            wait_until(lambda: words in text(driver, selector), f"{words!r} on the page")

        driver.get(world.url)
        reads("RUNNING serves applications", "#state")
        reads("No problem.", "#problems")
        reads("any 1 storage node", "#figures-body")
        assert text(driver, "#live-words") == "live"
        assert count(driver, ".grid .uptodate") == 48
        assert "free" in text(driver, "#disks") and driver.title == "RUNNING – shop – NEO"

        world.lose_storage()
        reads("is down", "#problems .problem")
        reads("start neostorage there", "#problems .advice")
        assert "neoctl drop" in text(driver, "#problems code")
        reads("DOWN", ".grid .row.down")
        assert count(driver, ".grid .down .outofdate") == 16
        assert "no storage node" in text(driver, "#figures-body")
        assert "its process is not reached" in text(driver, "#nodes")

        world.bring_back()
        reads("No problem.", "#problems")
        reads(" since ", "#figures-body .figure:first-child")  # two samples were there
        assert text(driver, "#figures-body .figure:first-child .value") not in ("", "0", "–")
        with world.operation("set", "partitions", "12"):
            reads(": partitions 12 instead of 24", "#operations h3")
            wait_until(lambda: 0 < progress(driver) < 1, "the bar moves")
            assert count(driver, "main button") == 0, "nobody is signed in"
            abort_operation(driver, reads)
        wait_until(lambda: not text(driver, "#operations"), "the operation has ended")

        end_transaction(driver, world, reads)

        world.lose_primary()
        reads("The primary master is away", "#away")
        reads("neomaster", "#away code")
        assert "was RUNNING" in text(driver, "#state") and text(driver, "#live-words") == "not live"
        assert driver.title.startswith("(1) not live")
        driver.refresh()  # a page that is opened now also shows what was seen last
        reads("The primary master is away", "#away")
        assert count(driver, ".grid .uptodate") == 48

        world.lose_admin()
        reads("The admin node does not answer", "#away")
        reads("No answer for", "#since")
        refused = console(driver)
        expected = "ERR_CONNECTION_REFUSED", "503", "409"  # 409: what neoctl refuses, too
        assert all(any(each in line for each in expected) for line in refused), refused
