"""A Pulsar cluster beside its topics: its groups, namespaces and rates, over its REST API."""
