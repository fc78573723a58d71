"""The estimate of what history costs in a day, from a bounded number of rows."""

import json
from io import StringIO

import helpers
import pytest
from django.core.management import call_command
from django.db import connection
from test_cleaner_load import ago, write
from test_cost import counted

from django_txtasks.insight import history_cost as room
from django_txtasks.insight.history_cost import history_cost

pytestmark = pytest.mark.usefixtures("rows")


def finished(count, outcome, seconds, **columns):
    write(
        count, "txtasks_finishedtask", outcome=f"'{outcome}'", finished_at=ago(seconds), **columns
    )


def test_without_history_it_costs_nothing():
    cost = history_cost()
    assert (cost.outcomes, cost.mb_a_day) == ({}, 0)
    assert cost.table_bytes > 0
    assert cost.as_json()["mb_a_day"] == 0


def test_few_rows_are_counted_for_the_whole_day():
    finished(30, "succeeded", 3600)
    finished(5, "cancelled", 7200)
    finished(90, "succeeded", 90_000)  # before
    cost = history_cost()
    assert {name: one.rows_a_day for name, one in cost.outcomes.items()} == {
        "succeeded": 30, "cancelled": 5
    }  # fmt: skip
    assert room.ROW_BYTES < cost.outcomes["succeeded"].bytes_a_row < room.ROW_BYTES + 100
    assert cost.mb_a_day == pytest.approx(sum(one.mb_a_day for one in cost.outcomes.values()))


def rows_a_day():
    return {name: one.rows_a_day for name, one in history_cost().outcomes.items()}


def test_of_many_rows_the_newest_are_read_and_figures_say_how_many_a_day_brings(monkeypatch):
    """Rows of a minute are not multiplied by the minutes of a day."""
    monkeypatch.setattr(room, "MOST_ROWS", 100)
    finished(500, "expired", 7200)
    finished(100, "succeeded", 60)
    assert rows_a_day() == {"succeeded": 100}, "at least these"
    counted(succeeded=250, other=500)
    assert rows_a_day() == {"succeeded": 250}


@pytest.mark.parametrize(
    ("succeeded", "cancelled", "figures", "expected"),
    [
        (50, 50, (500, 500), {"succeeded": 500, "cancelled": 500}),
        (50, 50, (500, 90_000), {"succeeded": 500, "cancelled": 500}),  # most were snoozes
        (1, 99, (90_000, 200), {"succeeded": 90_000, "cancelled": 200}),  # many cancelled just now
        (0, 100, (0, 300), {"cancelled": 300}),
        (0, 100, (0, 0), {"cancelled": 100}),
    ],
)
def test_outcomes_that_figures_do_not_keep_apart(
    monkeypatch, succeeded, cancelled, figures, expected
):
    monkeypatch.setattr(room, "MOST_ROWS", 100)
    finished(succeeded, "succeeded", 60)
    finished(cancelled, "cancelled", 60)
    counted(succeeded=figures[0], other=figures[1])
    found = rows_a_day()
    assert {name: found.get(name, 0) for name in expected} == pytest.approx(expected)


def test_without_figures_all_rows_of_the_day_are_counted(monkeypatch, txtasks):
    txtasks(stats=False)
    monkeypatch.setattr(room, "MOST_ROWS", 100)
    finished(250, "succeeded", 60)
    finished(90, "succeeded", 90_000)
    assert rows_a_day() == {"succeeded": 250}


def test_large_arguments_and_results_count():
    text = "'\"" + "x1y2" * 100 + "\"'"
    finished(10, "succeeded", 60)
    finished(10, "discarded", 60, errors=text, result=text)
    outcomes = history_cost().outcomes
    more = outcomes["discarded"].bytes_a_row - outcomes["succeeded"].bytes_a_row
    assert more > (600 if connection.vendor != "postgresql" else 60)  # it compresses
    assert helpers.counts()["finished"] == 20


def test_the_command_shows_it():
    finished(10, "succeeded", 60)
    out = StringIO()
    call_command("txtasks_status", history=True, stdout=out)
    assert "in the last day they have added about 0.0 MB (succeeded 0.0)." in out.getvalue()
    out = StringIO()
    call_command("txtasks_status", history=True, json=True, stdout=out)
    assert json.loads(out.getvalue())["history"]["outcomes"]["succeeded"]["rows_a_day"] == 10
