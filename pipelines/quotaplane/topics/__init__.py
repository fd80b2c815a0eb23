"""Topics of a Pulsar cluster: bundles, layout on brokers, marks in their rates. Pure."""
