"""Proof of the load balancer on a real cluster: stock Pulsar's balancing, and ours."""
