"""Throttling: what becomes of single requests, given a limit.

A throttle law answers requests: admitted or not, for how long the client is to be throttled, and
what is left. A limit says how much a second; the law, how it is held to.
"""
