"""Requests to a Pulsar cluster's REST API about bundles, brokers' load and isolation."""
