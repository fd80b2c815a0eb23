"""More new topics than the enforcer may read the rates of."""

from __future__ import annotations

import asyncio

import numpy as np

from quotaplane.model import BoolArray
from tests.unit.enforce.rate_writer_rig import Rig


def asked_first(rig: Rig, limited: BoolArray, count: int, *, looks: int = 1) -> list[str]:
    """Topic and kind of the first reads, while nothing is answered."""

    async def scene() -> None:
        rig.rest.answers.clear()
        unread = rig.unread()._replace(unread=np.ones(limited.shape, bool))
        for _ in range(looks):
            rig.writer.read_unknown(unread, limited=limited)
        await asyncio.sleep(0.05)
        await rig.writer.idle(0.0)

    asyncio.run(scene())
    return [asked.split("/", 3)[3].replace("//", "/") for asked in rig.rest.asked[:count]]


def test_the_newest_topics_are_read_first_and_of_these_what_will_be_limited() -> None:
    rig = Rig(50)
    rig.has(*rig.names, "b-new", "c-new")
    rig.has(*rig.names, "a-newest", "b-new", "c-new")
    limited = np.zeros((53, 2), bool)
    limited[:, 0] = True
    assert asked_first(rig, limited, 5) == [
        "a-newest/publishRate",
        "b-new/publishRate",
        "c-new/publishRate",
        "t0000/publishRate",
        "t0001/publishRate",
    ]


def test_newer_topics_push_older_ones_out_of_the_queue() -> None:
    rig = Rig(3000, max_reads_per_s=200.0)
    limited = np.ones((3000, 2), bool)

    async def scene() -> list[str]:
        rig.rest.answers.clear()
        rig.writer.read_unknown(rig.unread()._replace(unread=limited.copy()), limited=limited)
        new = [f"z{n:03}" for n in range(30)]
        rig.has(*rig.names, *new)
        wide = np.ones((3030, 2), bool)
        rig.writer.read_unknown(rig.unread()._replace(unread=wide), limited=wide)
        await asyncio.sleep(0.05)
        await rig.writer.idle(0.0)
        return rig.rest.asked

    asked = asyncio.run(scene())
    assert len(asked) == 16
    assert all("/z0" in each for each in asked)
