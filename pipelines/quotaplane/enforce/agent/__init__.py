"""The enforcer as a program: asyncio around the pure parts of ``enforce``."""
