"""The load balancer: from the load of brokers and bundles to moves and splits. Pure.

``cluster_load`` is what every strategy gets, ``decisions`` what it returns. ``stock/`` has Pulsar's
own strategies; quotaplane's strategy is in the other files.
"""
