"""The charts of the page *At a glance* are paths that any browser draws."""

from datetime import datetime, timedelta, timezone

import pytest

from django_txtasks.admin.glance import charts

pytestmark = pytest.mark.once
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def test_bars_are_stacked_and_scaled_to_the_highest():
    found = charts.bars([1, 0, 2], [1, 0, 2])
    assert found.most == 4
    assert found.good == "M1 100.00v-25.00h8v25.00zM21 100.00v-50.00h8v50.00z"
    assert found.bad == "M1 75.00v-25.00h8v25.00zM21 50.00v-50.00h8v50.00z"
    assert found.width == 30


def test_without_figures_there_is_nothing_to_draw():
    assert charts.bars([], []) == charts.Bars(10, "", "", "", 0, 0)
    assert charts.bars([0], [0], [None]) == charts.Bars(10, "", "", "", 0, 0)


def test_a_line_has_gaps_where_nothing_is_known():
    found = charts.bars([0] * 4, [0] * 4, [0, 10, None, 5])
    assert (found.line, found.most_of_line) == ("M5 100.00L15 0.00M35 50.00", 10)


def test_a_line_of_zeros_lies_on_the_ground():
    assert charts.bars([0, 0], [0, 0], [0, 0]).line == "M5 100.00L15 100.00"


@pytest.mark.parametrize(
    ("seconds", "place"), [(-1, None), (0, 0), (30, 5), (60, 10), (120, 20), (900, 20)]
)
def test_a_moment_has_a_place_on_the_axis(seconds, place):
    starts = [START, START + timedelta(minutes=1)]
    assert charts.place_of(START + timedelta(seconds=seconds), starts, 60) == place


def test_a_moment_without_an_axis():
    assert charts.place_of(START, [], 60) is None
