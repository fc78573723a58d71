"""What the log says to the person at 3 a.m.: what was found, where, what to do; and no secret."""

import pytest

from django_txtasks.conf import Config, parse
from django_txtasks.exceptions import ConfigError

pytestmark = pytest.mark.once


# ---- the broker's password


@pytest.mark.parametrize(
    "url",
    [
        "amqp://shop:hunter2/x@rabbit:5672/",
        "amqp://shop:77/hunter2@rabbit:5672/",  # a port, and a path with the rest of the password
        "amqp://shop:77?hunter2@rabbit/",
        "amqp://shop:hunter2#x@rabbit:5672/",
        "amqp://shop:77#hunter2",
        "amqp://shop:hunter2[x@rabbit:5672/",
        "amqp://shop:hunter2]x@rabbit:5672/",
        "amqp://shop:x@rabbit:hunter2/",
        "hunter2",
    ],
)
def test_a_broker_url_that_cannot_be_read_is_refused_and_not_shown(url):
    with pytest.raises(ConfigError, match="must look like amqp://user:password@host") as caught:
        parse({"broker_url": url})
    error = caught.value
    assert "hunter2" not in str(error) and error.__context__ is None
    assert "hunter2" not in repr(Config(broker_url=url))
    assert Config(broker_url=url).broker_address == "amqp://..."


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://shop:hunter2%2F@rabbit/a%2Fb?heartbeat=5", "amqp://rabbit:5672/a%2Fb"),
        ("amqps://shop:hunter2@[::1]/", "amqps://::1:5671/"),
        ("amqp://shop:hunter2@x@rabbit:1/", "amqp://rabbit:1/"),
        ("amqp://", "amqp://localhost:5672"),
        ("", "none"),
    ],
)
def test_the_address_of_the_broker_has_neither_user_nor_password(url, address):
    assert parse({"broker_url": url}).broker_address == address
