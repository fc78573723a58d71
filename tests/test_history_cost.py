"""The estimate of what history costs in a day, from a bounded number of rows."""

import json
from io import StringIO

import helpers
import pytest
from django.core.management import call_command
from django.db import connection
from test_cleaner_load import ago, write

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
    assert cost.seconds == 86400
    assert room.ROW_BYTES < cost.outcomes["succeeded"].bytes_a_row < room.ROW_BYTES + 100
    assert cost.mb_a_day == pytest.approx(sum(one.mb_a_day for one in cost.outcomes.values()))


def test_of_many_rows_the_newest_are_read(monkeypatch):
    monkeypatch.setattr(room, "MOST_ROWS", 100)
    finished(500, "expired", 7200)
    finished(100, "succeeded", 600)
    cost = history_cost()
    assert list(cost.outcomes) == ["succeeded"]
    assert cost.seconds == pytest.approx(600, abs=120)
    assert cost.outcomes["succeeded"].rows_a_day == pytest.approx(14_400, rel=0.2)


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
    assert "MB a day (succeeded 0.0), by the last 24.0 hours." in out.getvalue()
    out = StringIO()
    call_command("txtasks_status", history=True, json=True, stdout=out)
    assert json.loads(out.getvalue())["history"]["outcomes"]["succeeded"]["rows_a_day"] == 10
