"""All exceptions that quotaplane raises. A message says what happened, where, and what to do.

Commands print ``str(error)`` on one line of stderr and exit with ``error.exit_code``. Any other
exception is a bug: exit code 70, and its traceback goes to a file.
"""


class QuotaplaneError(Exception):
    """Base class of all errors that quotaplane raises on purpose."""

    exit_code = 1


class ConfigError(QuotaplaneError):
    """A settings file or a command-line option is wrong; nothing was started."""

    exit_code = 2


class InputError(QuotaplaneError):
    """A case, scenario or request from a user is wrong; nothing was written."""

    exit_code = 2


class UnknownGroupError(InputError):
    """A resource group is named that does not exist."""


class GroupInUseError(InputError):
    """A resource group can't be deleted: a tenant or namespace is attached to it."""


class CopyOfQuotaError(InputError):
    """A resource group can't be changed: it keeps another group's quota for the enforcer."""


class GroupIdTakenError(InputError):
    """A resource group can't have its name: another group has the id that follows from it."""


class ThrottlingQuotaExceededError(QuotaplaneError):
    """A service refuses a request above a hard throttle quota; the client may retry later.

    Name and code are those of Kafka's protocol (KIP-599). ZooKeeper's document calls it
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


class MessageTooLargeError(TransportError):
    """A topic does not take a message of this size; of others sent with it, it may lack some."""


class HistoryError(QuotaplaneError):
    """A history table is missing, or was not written by this version."""

    exit_code = 4


class DamagedTableError(HistoryError):
    """Files of a history table are lost or damaged; nothing is read from them."""


class QueryTimeoutError(HistoryError):
    """A query took longer than it may, and was ended."""


class TableChangedError(HistoryError):
    """A history table has changed since it was read; read it again and repeat the decision."""


class NoUsableReportsError(QuotaplaneError):
    """Reports arrive, but none was usable for longer than the settings allow."""

    exit_code = 5


class ClusterError(QuotaplaneError):
    """A cluster's REST API can't be reached, refuses a request, or gives an invalid answer."""

    exit_code = 6


class SlowPythonError(QuotaplaneError):
    """Spark did not wait until a Python process had started: the host is busy, or Python broken."""


class FailedBatchError(QuotaplaneError):
    """A micro-batch failed too often and is not run again; it can be skipped."""

    exit_code = 7


class OutputError(QuotaplaneError):
    """A command's stdout can't be written. Changes that the command made before stay.

    If the reader of a pipe has left, the cause is a ``BrokenPipeError``: the command then ends
    without a line, as a shell expects.
    """

    exit_code = 9


class DeposedError(QuotaplaneError):
    """Another process leads in place of this one, which must not publish any more."""

    exit_code = 13


class SucceededError(DeposedError):
    """A job with a standby was deposed by it; once it is started again, it is the standby."""

    exit_code = 14
