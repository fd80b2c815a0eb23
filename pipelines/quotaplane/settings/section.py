"""Base class of all parts of the settings file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys, NaN and infinity are errors; values are immutable."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        # Short commands use few sections: validators are built when they are used.
        defer_build=True,
    )
