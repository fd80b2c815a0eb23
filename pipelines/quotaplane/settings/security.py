"""Settings that switch off protections."""

from __future__ import annotations

from quotaplane.settings.section import Section


class Protections(Section):
    """Things that are refused by default and can be allowed."""

    allow_cleartext_secrets: bool = False
    """Send tokens and passwords to other hosts over connections without TLS, where every host in
    between can read them."""
    allow_unprotected_spark: bool = False
    """Run with a remote Spark master without Spark's authentication and encryption: every program
    that reaches its ports can read reports and quotas, and run code as the job."""
