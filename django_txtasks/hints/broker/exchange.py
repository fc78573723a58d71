"""A message to an exchange of another application."""

from __future__ import annotations

import json
import os
from typing import Any

import pika

from django_txtasks.conf import Config
from django_txtasks.hints.broker import quiet, topology


def publish(config: Config, exchange: str, routing_key: str, message: dict[str, Any]) -> None:
    """Send a persistent message, on a connection of its own, and wait until RabbitMQ has it.

    Raises:
        pika.exceptions.AMQPError: there is no broker or no such exchange, no queue is bound to it, or RabbitMQ
            refused the message. Try again later.
    """
    name = f"txtasks exchange {os.getpid()}"
    with quiet.ours(), topology.connect(config, name) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        body = json.dumps(message).encode()
        channel.basic_publish(exchange, routing_key, body, persistent, mandatory=True)
