"""The arena: every law on every scenario under every condition (``make arena``, docs/arena.md)."""
