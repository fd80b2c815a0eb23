"""Protections that may be given up, each in so many words."""

from __future__ import annotations

from quotaplane.settings.section import Section


class Protections(Section):
    """What is refused unless it is allowed here."""

    allow_cleartext_secrets: bool = False
    """Send tokens and passwords to other hosts over connections without TLS, where everybody on the
    way can read them."""
    allow_unprotected_spark: bool = False
    """Run with a remote Spark master without Spark's authentication and encryption: everybody who
    reaches its ports can read reports and quotas and run code as the job."""
