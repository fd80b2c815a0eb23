"""Copies a Pulsar cluster's resource groups into the table ``resource_groups``, continuously."""
