"""Base class of all parts of the settings file."""

from __future__ import annotations

from pydantic import ConfigDict

from quotaplane.parsing.one_spelling import OneSpelling


class Section(OneSpelling):
    """A part of the settings file."""

    # Short commands use few sections: validators are built when they are used.
    model_config = ConfigDict(defer_build=True)
