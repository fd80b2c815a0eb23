"""Finds the quotas of users and client ids that apply to a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from quotaplane.errors import InputError
from quotaplane.groups.policy_options import DEFAULTS
from quotaplane.groups.resolve import resolve, scopes_of
from quotaplane.groups.scope import encode
from quotaplane.model import DIMENSIONS, RATE_COLUMNS
from quotaplane.throttle.terms import terms_of


def resolved(groups: pa.Table, user: str | None, client: str | None) -> Iterator[dict[str, Any]]:
    """The quotas that apply to requests of a user and a client, by dimension; None: no name.

    ``groups`` has the form of ``list_groups``. ``mode`` is the group's; a shadow or soft group also
    hides less specific ones. ``shared_by`` names the requests that use up the quota together: those
    of this user, of this client id, or of both.

    Names are those in requests, so ``<default>`` is a user or client with that very name.

    Raises:
        InputError: a name can't be one.
    """
    for who, name in (("user", user), ("client", client)):
        try:
            if name is not None:
                encode(name)
        except InputError as error:
            raise InputError(f"{who}: {error}") from None
    names, throttle = groups["group"], groups["throttle"]
    scopes = scopes_of(names)
    names_of_both = (pa.array([user], pa.string()), pa.array([client], pa.string()))
    for dimension, column in zip(DIMENSIONS, RATE_COLUMNS, strict=True):
        found = resolve(scopes, np.asarray(groups[column].is_valid()), *names_of_both)
        row = int(found.definition[0])
        if row < 0:
            continue
        shared = {"user": found.entity_user[0], "client": found.entity_client[0]}
        yield {
            "dimension": dimension,
            "rate_per_s": groups[column][row].as_py(),
            "group": names[row].as_py(),
            "mode": groups["mode"][row].as_py() or DEFAULTS["mode"],
            "terms": terms_of(throttle[row].as_py(), dimension).model_dump(mode="json"),
            "shared_by": {k: v.as_py() for k, v in shared.items() if v.is_valid},
        }
