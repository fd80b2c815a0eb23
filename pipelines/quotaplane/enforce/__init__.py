"""Turns limits of brokers into rates of Pulsar topics, which stock brokers enforce; pure.

See docs/explain/enforcer.md.
"""
