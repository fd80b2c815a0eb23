"""What delta-rs leaves to its users: safe reads, commits that outlast a power loss, mending a log.

Serves the history's tables and the embedded transport's topics alike. Errors are those of the
operating system and of deltalake; the callers tell whose table it is.
"""
