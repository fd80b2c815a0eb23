"""Plants a bug into the real code, to prove that the simulation finds such bugs.

It is a change of one line of one function, made in memory: ``before`` must be in its source once,
or the plant fails.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Iterator, Set
from contextlib import contextmanager
from itertools import count
from types import CodeType, FunctionType
from typing import Any, NamedTuple


class Planted(NamedTuple):
    """A planted bug."""

    function: Any
    before: str
    """Text in the function's source."""
    after: str
    """Text in its place with the bug."""
    first_seed: int
    """The first seed that finds it."""
    needs: tuple[str, ...] = ()
    """Without these a scenario can't find it, or hardly, so its seed is passed over: names of
    faults, and what ``traits`` of a scenario says."""
    at_end: bool = False
    """It may show only after the faults, in who is served."""

    def may_be_found_in(self, traits: Set[str]) -> bool:
        """Whether it is worth while to run a scenario of these traits."""
        return traits.issuperset(self.needs)


@contextmanager
def planted(bug: Planted) -> Iterator[None]:
    """A context in which the bug is there.

    Raises:
        ValueError: the function has changed, and the bug does not fit it any more.
    """
    function: FunctionType = bug.function
    before = function.__code__
    function.__code__ = _mutated(function, bug)
    function.__globals__["ticks_"] = count(1)
    try:
        yield
    finally:
        function.__code__ = before
        del function.__globals__["ticks_"]


def _mutated(function: FunctionType, bug: Planted) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(bug.before) != 1:
        raise ValueError(f"{function.__qualname__} has {bug.before!r} not once")
    lines = [line for line in source.splitlines() if not line.startswith("@")]
    text = "\n".join(lines).replace(bug.before, bug.after)
    if free := function.__code__.co_freevars:  # a call of super()
        text = f"def outer({', '.join(free)}):\n{textwrap.indent(text, '  ')}"
    flags = __future__.annotations.compiler_flag
    module = compile(text, f"<{function.__qualname__} with a bug>", "exec", flags)
    found = _first_code(module)
    return _first_code(found) if free else found


def _first_code(code: CodeType) -> CodeType:
    return next(each for each in code.co_consts if isinstance(each, CodeType))
