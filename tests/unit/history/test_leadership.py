"""The table ``leaders``: of several processes of one job, only the newest may publish."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from quotaplane.errors import ConfigError, DeposedError, HistoryError
from quotaplane.history.leadership import Leadership
from quotaplane.history.store import table_uri
from quotaplane.settings import History

pytestmark = pytest.mark.usefixtures("tables")


def test_a_new_checkpoint_is_later_than_every_claim_before(history: History) -> None:
    assert Leadership(history, "quota", "/a").newest() is None
    assert Leadership(history, "quota", "/a").claim_new("a", 1000) == 1000
    assert Leadership(history, "quota", "/b").claim_new("b", 1000) == 1001
    assert Leadership(history, "quota", "/c").claim_new("c", 5000) == 5000
    assert Leadership(history, "quota", "/a").newest() == "c"


def test_checkpoints_that_start_at_once_get_different_epochs(history: History) -> None:
    with ThreadPoolExecutor(4) as pool:
        epochs = pool.map(lambda n: Leadership(history, "quota", n).claim_new(n, 7), "abcd")
    assert sorted(epochs) == [7, 8, 9, 10]
    assert DeltaTable(table_uri(history, "leaders")).to_pyarrow_table().num_rows == 1


def test_of_standbys_that_take_over_at_once_exactly_one_leads(history: History) -> None:
    epoch = Leadership(history, "quota", "/a").claim_new("a", 1000)
    standbys = [Leadership(history, "quota", "/a") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda each: each.claim("a", epoch), standbys))

    def leads(each: Leadership) -> bool:
        try:
            each.check()
        except DeposedError:
            return False
        return True

    assert sum(map(leads, standbys)) == 1


def test_a_leader_stays_one_whatever_happens_to_other_jobs(history: History) -> None:
    quota, balance = Leadership(history, "quota", "/a"), Leadership(history, "balance", "/a")
    epoch = quota.claim_new("a", 1000)
    balance.claim_new("a", 1000)
    quota.claim("a", epoch)
    quota.check()
    balance.check()


def test_an_older_checkpoint_is_deposed_by_a_newer_one(history: History) -> None:
    older = Leadership(history, "quota", "/a")
    older.claim_new("a", 1000)
    older.check()
    Leadership(history, "quota", "/b").claim_new("b", 1000)
    with pytest.raises(DeposedError, match=r"quota job: deposed: .*process \d+ on host .*/b"):
        older.check()
    with pytest.raises(DeposedError):  # its job starts again in the same process
        older.claim("a", 1000)


def test_of_two_processes_with_one_checkpoint_the_newer_leads(history: History) -> None:
    first, second = Leadership(history, "quota", "/a"), Leadership(history, "quota", "/a")
    epoch = first.claim_new("a", 1000)
    second.claim("a", epoch)
    second.check()
    with pytest.raises(DeposedError):
        first.check()


def test_an_older_checkpoint_is_not_started(history: History) -> None:
    Leadership(history, "quota", "/a").claim_new("a", 1000)
    Leadership(history, "quota", "/b").claim_new("b", 1000)
    with pytest.raises(ConfigError, match=r"checkpoint /a: its epoch 1000 is over, .*/b"):
        Leadership(history, "quota", "/a").claim("a", 1000)


def test_of_two_checkpoints_with_one_epoch_the_second_is_not_started(history: History) -> None:
    """One of them was not made by ``claim_new``: epochs made by it never tie."""
    Leadership(history, "quota", "/a").claim("a", 1000)
    with pytest.raises(ConfigError, match="its epoch 1000 is over"):
        Leadership(history, "quota", "/b").claim("b", 1000)


def test_without_its_row_a_process_does_not_lead(history: History) -> None:
    leadership = Leadership(history, "quota", "/a")
    leadership.claim_new("a", 1000)
    DeltaTable(table_uri(history, "leaders")).delete()
    with pytest.raises(DeposedError, match="the table leaders was emptied"):
        leadership.check()


def test_a_table_that_is_gone_is_an_error_of_the_history(history: History) -> None:
    leadership = Leadership(history, "quota", "/a")
    leadership.claim_new("a", 1000)
    table = Path(table_uri(history, "leaders"))
    table.rename(table.with_name("elsewhere"))
    with pytest.raises(HistoryError, match="leaders"):
        leadership.check()
