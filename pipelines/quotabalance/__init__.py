"""The load balancer of Pulsar clusters, a second import package of quotaplane's distribution.

It imports quotaplane (streams, transports, history, ...), and quotaplane never imports it.
"""
