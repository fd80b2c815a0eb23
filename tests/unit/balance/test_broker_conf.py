"""``broker.conf``: read as Pulsar reads it, and what is said about it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.stock.broker_conf import (
    parse_broker_conf,
    properties_of,
    shedder_of,
    without_effect,
)
from quotabalance.stock.stock_settings import DECLARED, REPLACED, StockSettings
from quotaplane.errors import InputError
from tests.unit.repo.pages import ROOT

_STOCK = ROOT / "pipelines/quotabalance/stock"


def read(text: str) -> StockSettings:
    return parse_broker_conf(text.encode("latin-1"), "broker.conf").settings


def test_a_file_as_people_write_it() -> None:
    text = (
        "# bundle split ###\r\n"
        "  ! another comment\r\n"
        "zookeeperServers=zk:2181\r\n"
        "loadBalancerSheddingEnabled=false\r\n"
        "maxUnloadPercentage= 0.5\r\n"
        "loadBalancerAvgShedderLowThreshold = 25\r\n"
        "loadBalancerNamespaceBundleMaxSessions\r\n"
        "supportedNamespaceBundleSplitAlgorithms=range_equally_divide,\\\r\n"
        "    topic_count_equally_divide\r\n"
        "loadBalancerHistoryResourcePercentage:.75d\r\n"
        "minUnloadMessage=0010\r\n"
        "minUnloadMessage=0020\r\n"
        "loadBalancerOverrideBrokerNicSpeedGbps=\r\n"
    )
    conf = parse_broker_conf(text.encode(), "broker.conf")
    assert conf.given == {
        "loadBalancerSheddingEnabled": False,
        "maxUnloadPercentage": 0.5,
        "loadBalancerAvgShedderLowThreshold": 25,
        "supportedNamespaceBundleSplitAlgorithms": (
            "range_equally_divide",
            "topic_count_equally_divide",
        ),
        "loadBalancerHistoryResourcePercentage": 0.75,
        "minUnloadMessage": 20,
    }
    assert conf.notices == ()
    assert conf.settings.loadBalancerNamespaceBundleMaxSessions == 1000
    assert without_effect(conf.given) == ["supportedNamespaceBundleSplitAlgorithms"]


def test_entries_that_mean_something_else_than_one_thinks_are_named() -> None:
    text = (
        "minUnloadMessageThroughput=1*1024*1024\n"
        "getMaxUnloadBundleNumPerShedding=5\n"
        "loadBalancerTransferEnabled=yes\n"
        "lowerBoundarySheddingEnabled=on\n"
        "lowerBoundarySheddingEnabled=true\n"
    )
    conf = parse_broker_conf(text.encode(), "f")
    assert (
        conf.settings.minUnloadMessageThroughput,
        conf.settings.loadBalancerTransferEnabled,
    ) == (
        1048576,
        False,
    )
    assert conf.settings.maxUnloadBundleNumPerShedding == 5
    assert conf.notices == (
        "f line 1: minUnloadMessageThroughput=1*1024*1024 is no number for Pulsar, which does not"
        " start; 1048576 counts",
        "f line 2: Pulsar passes over getMaxUnloadBundleNumPerShedding; here it counts as"
        " maxUnloadBundleNumPerShedding, as which it is meant",
        "f line 3: loadBalancerTransferEnabled=yes is false: only 'true' is true",
    )
    both = "maxUnloadBundleNumPerShedding=3\ngetMaxUnloadBundleNumPerShedding=5"
    assert read(both).maxUnloadBundleNumPerShedding == 3


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("\n\nminUnloadMessage=ten", "line 3: minUnloadMessage is 'ten'; expected a whole number"),
        ("minUnloadMessage=1.5", "minUnloadMessage is '1.5'; expected a whole number of 32 bits"),
        ("minUnloadMessage=2147483648", "expected a whole number of 32 bits"),
        ("minUnloadMessage=99999*99999", "expected a whole number of 32 bits"),
        ("maxUnloadPercentage=NaN", "maxUnloadPercentage is 'NaN'; expected a finite number"),
        ("maxUnloadPercentage=1e999", "expected a finite number"),
        ("maxUnloadPercentge=1", "has no setting maxUnloadPercentge; do you mean maxUnloadPercent"),
        ("loadBalancerSheding=1", "Pulsar 4.0.8 has no setting loadBalancerSheding; do you mean"),
        ("a=\\u12", "line 1: \\u needs four hexadecimal digits; Pulsar does not start"),
    ],
)
def test_a_file_with_which_no_broker_starts_is_refused(text: str, error: str) -> None:
    with pytest.raises(InputError, match=re.escape(error)):
        read(text)


@pytest.mark.parametrize(
    ("manager", "shedder", "runs"),
    [
        ("impl.ModularLoadManagerImpl", "impl.UniformLoadShedder", "UniformLoadShedder"),
        ("extensions.ExtensibleLoadManagerImpl", "impl.ThresholdShedder", "TransferShedder"),
        ("extensions.ExtensibleLoadManagerImpl", "x.TransferShedder", "TransferShedder"),
        ("impl.ModularLoadManagerImpl", "x.TransferShedder", "has no shedder 'TransferShedder'"),
        ("impl.ModularLoadManagerImpl", "x.DeviationShedder", "has no shedder 'DeviationShedder'"),
        ("impl.SimpleLoadManagerImpl", "impl.OverloadShedder", "is not modelled"),
    ],
)
def test_the_shedder_is_the_one_that_the_load_manager_runs(
    manager: str, shedder: str, runs: str
) -> None:
    settings = StockSettings(loadManagerClassName=manager, loadBalancerLoadSheddingStrategy=shedder)
    if " " in runs:
        with pytest.raises(InputError, match=runs):
            shedder_of(settings)
        return
    found, notice = shedder_of(settings)
    assert found == runs
    assert bool(notice) == (not shedder.endswith(runs))


def test_a_setting_is_read_by_a_strategy_or_counts_as_without_effect() -> None:
    sources = "".join(path.read_text() for path in _STOCK.glob("*.py"))
    read_here = {
        name
        for name in DECLARED
        if re.search(rf'(settings|self)\.{name}\b|settings, "{name}"', sources)
    }
    assert read_here == DECLARED.keys() - REPLACED


@given(
    st.dictionaries(
        st.text("abc=: \\\t\f#!\u00e9", min_size=1), st.text("xyz=: \\\t\f#!\u00e9"), max_size=5
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_what_java_would_store_is_read_back(entries: dict[str, str], end: str) -> None:
    def escaped(text: str, everywhere: bool) -> str:
        text = re.sub(r"([\\=:#!])", r"\\\1", text).replace("\t", "\\t").replace("\f", "\\f")
        if everywhere:
            return text.replace(" ", "\\ ")
        return re.sub(r"^ ", r"\\ ", text)

    stored = end.join(
        f"{escaped(name, True)}={escaped(value, False)}" for name, value in entries.items()
    )
    found = {name: value for _, name, value in properties_of(stored, "f")}
    assert found == entries
