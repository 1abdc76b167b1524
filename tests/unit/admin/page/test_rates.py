"""The rate of commits, from a counter of the primary master (specification 17.50)."""

from __future__ import annotations

from neo.admin.page.rates import SAMPLES_MAX, CommitRates


def test_a_rate_is_the_difference_of_two_samples_of_one_counter() -> None:
    rates = CommitRates()
    assert rates.data(0.0) == {"per_second": None, "total": None, "since": None, "history": []}
    rates.add(10.0, 1000.0, 50)
    assert rates.data(10.0)["per_second"] is None, "one sample is no rate"
    rates.add(15.0, 1000.0, 150)
    rates.add(20.0, 1000.0, 150)
    found = rates.data(21.0)
    assert found["per_second"] == 0 and found["history"] == [[6.0, 20.0], [1.0, 0.0]]
    assert (found["total"], found["since"]) == (150, 1000.0)


def test_another_master_counts_anew_and_no_rate_spans_two_of_them() -> None:
    rates = CommitRates()
    rates.add(0.0, 1000.0, 5000)
    rates.add(5.0, 2000.0, 10)
    assert rates.data(5.0)["history"] == []
    rates.add(10.0, 2000.0, 20)
    assert rates.data(10.0)["per_second"] == 2.0
    rates.miss(15.0)
    assert rates.data(15.0)["per_second"] is None and rates.data(15.0)["total"] is None
    rates.add(20.0, 2000.0, 500)
    assert rates.data(20.0)["history"] == [[10.0, 2.0], [5.0, None]], "what was missed is no rate"


def test_ten_minutes_are_kept() -> None:
    rates = CommitRates()
    for number in range(2 * SAMPLES_MAX):
        rates.add(float(number), 0.0, number)
    assert len(rates.data(0.0)["history"]) == SAMPLES_MAX
