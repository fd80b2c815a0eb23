"""A Pulsar cluster's REST API: resource groups, namespaces, bundles, placement, rates, usage."""
