"""Pulsar 4.0.8's shedders, placements and split rules, reproduced bit for bit. Pure.

docs/explain/balance-stock.md lists where their behaviour is surprising. Names of settings are
Pulsar's.
"""
