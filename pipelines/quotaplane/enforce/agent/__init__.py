"""The enforcer of a Pulsar cluster: an asyncio program around the pure parts in ``enforce``."""
