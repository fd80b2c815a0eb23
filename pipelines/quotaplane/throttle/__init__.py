"""Throttle laws: which requests to admit or delay, given a limit.

A limit is a rate per second; a throttle law defines how requests are measured against it. For each
request it answers whether it is admitted, how long the client must wait, and what is left.
"""
