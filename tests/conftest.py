"""What holds for all tests."""

from __future__ import annotations

from collections.abc import Generator

import hypothesis
import pytest

# A machine that runs other tests beside this one is slow now and then; no test is timed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def _no_excuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Fail what was skipped, failed as expected, or passed where a failure was expected.

    Suites of others skip where a storage lacks something: it would be missed by nobody.
    """
    if report.skipped or hasattr(report, "wasxfail"):
        excuse = getattr(report, "wasxfail", None) or report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped or expected to fail, which no test here may: {excuse}"
        vars(report).pop("wasxfail", None)


# First of the wrappers, so that it sees what pytest's own made of xfail and unittest's exceptions.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _no_excuse(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _no_excuse(report)
    return report
