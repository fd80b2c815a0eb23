"""A Pulsar cluster's REST API: groups, namespaces, bundles, placement, rates and use of topics."""
