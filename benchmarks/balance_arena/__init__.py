"""The balance arena: quotaplane's balancer against Pulsar's own, on a simulated cluster."""
