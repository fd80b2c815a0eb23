"""The command ``quotaplane``: light, without a JVM."""
