"""The one exception tree. A message says what went wrong, where, and what to do about it.

The command-line front ends print ``str(error)`` on one line of stderr and leave with
``error.exit_code``; anything that is not a ``QuotaplaneError`` is a bug and keeps its traceback.
"""


class QuotaplaneError(Exception):
    """Base of every error that quotaplane raises on purpose."""

    exit_code = 1


class ConfigError(QuotaplaneError):
    """A settings file or a command-line option is wrong; nothing was started."""

    exit_code = 2


class InputError(QuotaplaneError):
    """A case, scenario or request handed in by a user is wrong; nothing was written."""

    exit_code = 2


class ThrottlingQuotaExceededError(QuotaplaneError):
    """A service refuses a request that is above a hard throttle quota; to be tried again later.

    The name and the code are those of Kafka's protocol (KIP-599). ZooKeeper's document calls it a
    QuotaExceededException.

    >>> error = ThrottlingQuotaExceededError("user alice: mutations", retry_after_ms=8000)
    >>> f"{error} ({error.name}, {error.code})"
    'user alice: mutations: retry after 8000 ms (THROTTLING_QUOTA_EXCEEDED, 89)'
    """

    name = "THROTTLING_QUOTA_EXCEEDED"
    code = 89

    def __init__(self, what: str, *, retry_after_ms: float) -> None:
        super().__init__(f"{what}: retry after {retry_after_ms:.0f} ms")
        self.retry_after_ms = retry_after_ms


class TransportError(QuotaplaneError):
    """A topic can't be read from or written to."""

    exit_code = 3


class HistoryError(QuotaplaneError):
    """A history table is missing, or is not what this version writes."""

    exit_code = 4


class TableChangedError(HistoryError):
    """A history table was changed since it was read; read it again, and decide anew."""


class TooManyBadReportsError(QuotaplaneError):
    """More reports than the configured share could not be used: stop, do not steer by noise."""

    exit_code = 5


class ClusterError(QuotaplaneError):
    """A cluster's REST API can't be reached, refuses, or answers what makes no sense."""

    exit_code = 6


class FailedBatchError(QuotaplaneError):
    """A micro-batch failed too often to be run again; it can be skipped."""

    exit_code = 7
