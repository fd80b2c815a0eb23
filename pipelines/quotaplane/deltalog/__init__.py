"""Delta tables in local folders: safe reads, commits that survive a power loss, repair of the log.

Used for the history's tables and for the embedded transport's topics. Errors are those of the
operating system and of deltalake; callers add which table it was.
"""
