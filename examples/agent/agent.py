"""A broker's agent: python agent.py SETTINGS BROKER GROUP WANTED_PER_S"""

import sys
import time

from quotaplane.client.agent import BrokerClient
from quotaplane.errors import TransportError
from quotaplane.model import Transition
from quotaplane.settings import load_settings
from quotaplane.transport import open_broker_link
from quotaplane.wire.signatures import SigningKeys


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


def steady_ms() -> float:
    return time.monotonic() * 1000


conf, broker, group, wanted_per_s = sys.argv[1:]
settings = load_settings(conf)
interval_s = settings.reports.interval_s
link = open_broker_link(settings.transport)
strict = settings.limits.transition is Transition.STRICT
keys = SigningKeys.of(settings.limits.signing)
client = BrokerClient(
    link, broker, now_ms=clock_ms, steady_ms=steady_ms, groups=[group], strict=strict, keys=keys
)
try:
    while True:
        wanted = float(wanted_per_s) * interval_s
        admitted = min(wanted, client.limit(group)["publish_messages"] * interval_s)
        client.use(group, publish_messages=admitted)
        client.refuse(group, publish_messages=wanted - admitted)
        time.sleep(interval_s)
        try:
            client.report()
            client.poll()
        except TransportError as error:
            print(f"{error}; trying again", file=sys.stderr)
except KeyboardInterrupt:
    link.close()
