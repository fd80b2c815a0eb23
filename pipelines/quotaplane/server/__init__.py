"""``quotaplane serve``: groups, attachments and the history over HTTP, for people and tools."""
