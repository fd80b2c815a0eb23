"""Lines of the real tool, and texts that only look like these."""

from __future__ import annotations

import time

import pytest

from quotaplane.errors import InputError
from quotaplane.kafka_quotas.client_quotas import gather
from quotaplane.kafka_quotas.described import is_described, read_described

# Printed alike by the tools of 3.9.1, 4.1.0, 4.3.1 and 4.4.0, for users, clients, both, and ips.
PRINTED = """\
Quota configs for user-principal ' a  b ' are consumer_byte_rate=5.0
Quota configs for user-principal 'alice' are producer_byte_rate=1048576.0, \
consumer_byte_rate=2097152.0, controller_mutation_rate=5.0, request_percentage=50.0
Quota configs for user-principal 'CN=jürgen, O=A's are b=1' are producer_byte_rate=3.0
Quota configs for user-principal '<default>' are producer_byte_rate=4.0
Quota configs for user-principal 'nan' are request_percentage=NaN
Quota configs for user-principal '$(reboot)`x`"q\\' are producer_byte_rate=11.0
Quota configs for the default user-principal are producer_byte_rate=1.0E12
Quota configs for user-principal 'esc\x1b[31m' are producer_byte_rate=9.0
SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=4096
Quota configs for client-id '-x --alter' are producer_byte_rate=6.0
Quota configs for the default client-id are producer_byte_rate=9.223372036854776E18
Quota configs for user-principal 'bob', the default client-id are request_percentage=12.5
Quota configs for user-principal 'alice', client-id 'app-1' are producer_byte_rate=524288.0
Quota configs for the default user-principal, client-id 'app-2' are producer_byte_rate=7.0
Quota configs for the default user-principal, the default client-id are producer_byte_rate=8.0
Quota configs for the default ip are connection_creation_rate=100.0
Quota configs for ip '127.0.0.1' are connection_creation_rate=12.0
"""

# From ZooKeeper, as tools before 4.0 also print.
OLD = """\
Configs for user-principal 'alice', client-id 'app-1' are producer_byte_rate=10
Configs for default user-principal, default client-id are producer_byte_rate=20
Configs for user-principal 'bob', default client-id are consumer_byte_rate=30
Configs for default client-id are consumer_byte_rate=40
"""


def read(text: str) -> dict[str, dict[str, float]]:
    found = gather(read_described(text, "f")).by_scope
    return {str(scope): values for scope, values in found.items()}


def test_every_form_of_the_tool() -> None:
    found = read(PRINTED)
    assert found.pop("user=nan").keys() == {"request_percentage"}
    assert found == {
        "user=%20a%20%20b%20": {"consumer_byte_rate": 5},
        "user=alice": {
            "producer_byte_rate": 1048576,
            "consumer_byte_rate": 2097152,
            "controller_mutation_rate": 5,
            "request_percentage": 50,
        },
        "user=CN%3Dj%C3%BCrgen%2C%20O%3DA%27s%20are%20b%3D1": {"producer_byte_rate": 3},
        "user=%3Cdefault%3E": {"producer_byte_rate": 4},
        "user=%24%28reboot%29%60x%60%22q%5C": {"producer_byte_rate": 11},
        "user=<default>": {"producer_byte_rate": 1e12},
        "user=esc%1B%5B31m": {"producer_byte_rate": 9},
        "client=-x%20--alter": {"producer_byte_rate": 6},
        "client=<default>": {"producer_byte_rate": 9.223372036854776e18},
        "user=bob,client=<default>": {"request_percentage": 12.5},
        "user=alice,client=app-1": {"producer_byte_rate": 524288},
        "user=<default>,client=app-2": {"producer_byte_rate": 7},
        "user=<default>,client=<default>": {"producer_byte_rate": 8},
    }
    assert gather(read_described(PRINTED, "f")).others == 2
    assert is_described(PRINTED)
    assert is_described("\n" + PRINTED.splitlines()[8])


def test_the_forms_of_older_tools() -> None:
    assert read(OLD.replace("\n", "\r\n")) == {
        "user=alice,client=app-1": {"producer_byte_rate": 10},
        "user=<default>,client=<default>": {"producer_byte_rate": 20},
        "user=bob,client=<default>": {"consumer_byte_rate": 30},
        "client=<default>": {"consumer_byte_rate": 40},
    }
    assert is_described(OLD)


def test_an_entity_without_numbers_is_one_also_where_lines_were_trimmed() -> None:
    line = "Quota configs for user-principal 'alice' are"
    assert read(line) == read(f"{line} \n\n") == {"user=alice": {}}


def test_a_name_that_looks_like_a_default_or_like_two_names() -> None:
    of_client = "Quota configs for client-id 'a', client-id 'b' are producer_byte_rate=1.0"
    assert read(of_client) == {"client=a%27%2C%20client-id%20%27b": {"producer_byte_rate": 1}}
    of_user = "Quota configs for user-principal 'a, the default client-id' are producer_byte_rate=1"
    assert list(read(of_user)) == ["user=a%2C%20the%20default%20client-id"]
    of_default = (
        "Quota configs for the default user-principal, client-id 'a', client-id 'b' are "
        "producer_byte_rate=1"
    )
    assert list(read(of_default)) == ["user=<default>,client=a%27%2C%20client-id%20%27b"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Quota configs for user-principal 'a', client-id 'b', client-id 'c' are x=1", "a name in"),
        ("Quota configs for user-principal 'a\nb' are producer_byte_rate=1", "has a line break"),
        ("Dynamic configs for topic t are:", "is no line of kafka-configs.sh --describe"),
        ("[2026-01-01] WARN something", "is no line of kafka-configs.sh --describe"),
        ("Quota configs for user-principal '' are producer_byte_rate=1", "is no user-principal"),
        ("Quota configs for user 'a' are producer_byte_rate=1", "is no user-principal"),
        ("Quota configs for user-principal 'a' are producer_byte_rate=0x10", "is no quota"),
        ("Quota configs for user-principal 'a' are producer_byte_rate=1_0", "is no quota"),
        ("Quota configs for user-principal 'a' are \x1b[2J", "is no quota"),
    ],
)
def test_what_is_no_such_line_is_refused_with_its_number(line: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        read(f"{OLD}{line}\n")
    assert "f: line 5: " in str(caught.value)
    assert str(caught.value).isprintable()


def test_two_numbers_for_one_entity_are_refused_and_equal_ones_are_one() -> None:
    assert read(OLD + OLD) == read(OLD)
    with pytest.raises(InputError, match="are these two clusters"):
        read(OLD + OLD.replace("=10", "=11"))


@pytest.mark.parametrize(
    "hostile",
    [
        "Quota configs for user-principal '" + "x are " * 100_000,
        "Quota configs for user-principal '" + "', client-id '" * 50_000 + "' are a=1",
        "Quota configs for user-principal 'a' are " + "a=1, " * 100_000 + "!",
        "Quota configs for user-principal '" + "'" * 500_000,
    ],
)
def test_hostile_lines_take_no_time(hostile: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        read(hostile)
    assert time.process_time() - began < 2
    assert len(str(caught.value)) < 500
