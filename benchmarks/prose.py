"""Paragraphs of the results pages, wrapped."""

from __future__ import annotations

import re
import textwrap
from typing import Final

_WIDTH: Final = 110
_CODE: Final = re.compile(r"`[^`]+`|\[[^\]]+\](?=\()")
"""Code and the words of a link, which stay on one line."""
_NUMBER: Final = re.compile(r" (?=\d+\.(?: |$))")
"""Before a number that ends a sentence: at the start of a line it would begin a list."""
_SPACE: Final = "\0"


def wrapped(text: str) -> list[str]:
    """Lines of a paragraph or of an item of a list, and an empty one after a paragraph.

    >>> wrapped("One."), wrapped("- One.")
    (['One.', ''], ['- One.'])
    >>> wrapped("word " * 21 + "one of 100.")[1]
    'of 100.'
    """
    item = text.startswith("- ")
    text = _NUMBER.sub(_SPACE, text)
    lines = textwrap.wrap(
        _CODE.sub(lambda code: code[0].replace(" ", _SPACE), text),
        _WIDTH,
        subsequent_indent="  " if item else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = [line.replace(_SPACE, " ") for line in lines]
    return lines if item else [*lines, ""]


def wrapped_all(*texts: str) -> list[str]:
    """Lines of paragraphs; of items of one list, with an empty line at the end."""
    lines = [line for text in texts for line in wrapped(text)]
    return [*lines, ""] if lines[-1] else lines
