"""Quotas as data: the rows of the table resource_groups, read and changed without a JVM."""
