"""The arena: every law on every scenario and condition (``make arena``, docs/measured/arena.md)."""
