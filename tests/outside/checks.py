"""Conditions that must hold, judged by what was seen from outside only (``Evidence``).

docs/operate/reliability.md (From outside, with real servers) says what each check promises.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, Final, NamedTuple

from tests.outside.journal import Evidence, Exit, Held, Look, Published, PutRun, Run

CLOCKS_MS: Final = 3_000
"""Most by which clocks of the job and of agents are wrong in a run (see the lanes)."""
_ROUNDING: Final = 1e-9
_LATE_SEQS: Final = 2
_SLACK_MS: Final = 20
"""Between an agent's two readings of the clock for one look."""
_STEP_MS: Final = 500
KEPT_MS: Final = 5_000
"""Length of a window in which a use is judged."""
KNOWN_CODES: Final = frozenset({0, 3, 4, 13, -9})


class Violation(NamedTuple):
    """Something that does not hold."""

    check: str
    t_ms: int
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text} (at {self.t_ms})"


class Span(NamedTuple):
    """A limit that an agent could use from one time to another."""

    from_ms: int
    to_ms: int
    agent: str
    limit: float


def spans(evidence: Evidence, group: str) -> Iterator[Span]:
    """The limits in force of a group: each until the agent's next look, or its lease end."""
    for agent, looks in evidence.looks.items():
        ends = [look.t_ms for look in looks[1:]] + [evidence.end_ms]
        for look, end_ms in zip(looks, ends, strict=True):
            held = look.held.get(group)
            if held is not None and held.limit > 0 and not look.ended:
                # A lease that was over at the look ends nothing: the client should have known.
                over = held.until_ms if held.until_ms > look.t_ms else end_ms
                to_ms = min(end_ms, over)
                if to_ms > look.t_ms:
                    yield Span(look.t_ms, to_ms, agent, held.limit)


def ceilings(evidence: Evidence, group: str) -> list[tuple[float, float, float]]:
    """(from, to, quota): the quotas that limits in force may be of; a lowered one counts later."""
    settle_ms = 2 * evidence.lease_ms + evidence.stale_ms
    puts = [put for put in evidence.puts if put.group == group]
    found = []
    for at, (begun_ms, quota) in enumerate(
        [(-float("inf"), evidence.quotas.get(group, float("inf")))]
        + [(float(put.begun_ms), put.quota) for put in puts]
    ):
        later = [put.ended_ms for put in puts[at:] if put.acknowledged]
        until_ms = float(later[0] + settle_ms) if later else float("inf")
        found.append((begun_ms, until_ms, quota))
    return found


def learning(evidence: Evidence) -> list[tuple[int, int]]:
    """(from, to) when strict promises nothing yet: after an epoch's first limits.

    See docs/explain/laws.md.
    """
    first: dict[int, Published] = {}
    for each in evidence.published:
        first.setdefault(each.epoch, each)
    windows = []
    for epoch, each in first.items():
        ends = [p.issued_at_ms + p.lease_ms for p in evidence.published if p.epoch < epoch]
        over_ms = max([each.issued_at_ms + each.lease_ms, *ends])
        windows.append((each.t_ms - 1000, over_ms + evidence.stale_ms + CLOCKS_MS))
    return windows


def promised_ms(evidence: Evidence) -> int:
    """How long strict was judged: from the first limits on, except while an epoch learned."""
    at_ms = min((each.t_ms for each in evidence.published), default=evidence.end_ms)
    total_ms = 0
    for begin_ms, end_ms in [*sorted(learning(evidence)), (evidence.end_ms, evidence.end_ms)]:
        total_ms += max(begin_ms - at_ms, 0)
        at_ms = max(at_ms, end_ms)
    return total_ms


def share_in_force(evidence: Evidence) -> float:
    """In how much of all agents' time since the first limits they could use some of a group.

    Where it is small, the other checks have seen little: jobs were killed before they published.
    """
    from_ms = min((each.t_ms for each in evidence.published), default=evidence.end_ms)
    used_ms = sum(
        max(span.to_ms - max(span.from_ms, from_ms), 0)
        for group in evidence.quotas
        for span in spans(evidence, group)
    )
    all_ms = (evidence.end_ms - from_ms) * len(evidence.looks) * len(evidence.quotas)
    return used_ms / all_ms if all_ms else 0.0


def strict(evidence: Evidence) -> Iterator[Violation]:
    """Limits in force of all agents add up to at most the quota, at any time."""
    exempt = learning(evidence)
    for group in evidence.quotas:
        steps: dict[int, list[tuple[str, float]]] = defaultdict(list)
        for span in spans(evidence, group):
            steps[span.from_ms].append((span.agent, span.limit))
            steps[span.to_ms].append((span.agent, -span.limit))
        quotas = ceilings(evidence, group)
        held: dict[str, list[float]] = defaultdict(list)
        for t_ms in sorted(steps):
            for agent, limit in steps[t_ms]:
                if limit < 0:
                    held[agent].remove(-limit)
                else:
                    held[agent].append(limit)
            if any(begin <= t_ms < end for begin, end in exempt):
                continue
            total = sum(sum(limits) for limits in held.values())
            most = max(quota for begin, end, quota in quotas if begin <= t_ms < end)
            if total > most * (1 + _ROUNDING):
                each = {agent: limits for agent, limits in held.items() if limits}
                yield Violation("strict", t_ms, f"{group}: {total} of {most} in force: {each}")


def one_content(evidence: Evidence) -> Iterator[Violation]:
    """A limit of one (epoch, seq), broker and group is always the same."""
    contents: dict[tuple[object, ...], tuple[object, ...]] = {}
    for each in evidence.published:
        key = (each.epoch, each.seq, each.broker, each.group)
        content = (each.issued_at_ms, each.lease_ms, each.limit, each.safe)
        before = contents.setdefault(key, content)
        if before != content:
            yield Violation("one content", each.t_ms, f"{key}: {before}, then {content}")


def one_leader(evidence: Evidence) -> Iterator[Violation]:
    """At most two rounds of an older epoch are published once a newer one has begun."""
    newest, late = -1, defaultdict[int, set[int]](set)
    for each in evidence.published:
        newest = max(newest, each.epoch)
        if each.epoch < newest:
            late[each.epoch].add(each.seq)
            if len(late[each.epoch]) == _LATE_SEQS + 1:
                rounds = sorted(late[each.epoch])
                text = f"epoch {each.epoch} published rounds {rounds} after epoch {newest} began"
                yield Violation("one leader", each.t_ms, text)


def newest_obeyed(evidence: Evidence) -> Iterator[Violation]:
    """An agent obeys no message that is older than one that it has obeyed."""
    for agent, looks in evidence.looks.items():
        newest: dict[tuple[int, str], tuple[int, int]] = {}
        for look in looks:
            for group, held in look.held.items():
                key, version = (look.started_at_ms, group), (held.epoch, held.seq)
                if version < newest.get(key, (-1, -1)):
                    text = f"{agent} went from {newest[key]} to {version} of {group}"
                    yield Violation("newest obeyed", look.t_ms, text)
                newest[key] = version


def as_published(evidence: Evidence) -> Iterator[Violation]:
    """An agent uses exactly the published limit until the lease end, and nothing after it."""
    limits = {(p.epoch, p.seq, p.broker, p.group): p.limit for p in evidence.published}
    for agent, looks in evidence.looks.items():
        for look in looks:
            for group, held in look.held.items():
                key = (held.epoch, held.seq, agent, group)
                if held.epoch >= 0 and key not in limits:
                    yield Violation("as published", look.t_ms, f"{agent} has {key}, not published")
                    continue
                wanted = _wanted(look, held, limits.get(key, 0.0))
                at_the_end = abs(look.t_ms - held.until_ms) <= _SLACK_MS
                if held.limit != wanted and not at_the_end:
                    text = f"{agent} uses {held.limit} of {group}, not {wanted}, by {key}"
                    yield Violation("as published", look.t_ms, text)


def _wanted(look: Look, held: Held, published: float) -> float:
    return max(published, 0.0) if held.epoch >= 0 and look.t_ms <= held.until_ms else 0.0


def served_from(evidence: Evidence) -> int | None:
    """ms after the last fault from which on all agents had their parts until the end; None: not."""
    last_unserved = evidence.faults_end_ms
    times = range(evidence.faults_end_ms, evidence.end_ms, _STEP_MS)
    for t_ms in times:
        if any(_unserved(evidence, group, t_ms) for group in evidence.table):
            last_unserved = t_ms + _STEP_MS
    if not times or last_unserved > times[-1]:
        return None
    return last_unserved - evidence.faults_end_ms


def _unserved(evidence: Evidence, group: str, t_ms: int) -> str:
    """Why a group's agents do not have their parts at a time; "" = they do."""
    quota = evidence.table[group]
    wants: dict[str, float] = {}
    has: dict[str, float] = {}
    for agent, looks in evidence.looks.items():
        at = bisect_right(looks, t_ms, key=lambda look: look.t_ms) - 1
        if at < 0 or looks[at].ended:
            continue
        wants[agent] = looks[at].demand.get(group, 0.0)
        held = looks[at].held.get(group)
        has[agent] = held.limit if held is not None and held.until_ms > t_ms else 0.0
    for agent, want in wants.items():
        if has[agent] < 0.8 * min(want, quota / len(wants)):
            return f"{agent} has {has[agent]} of {group}, wants {want} of {quota}"
    if sum(has.values()) < 0.9 * min(quota, sum(wants.values())):
        return f"{group}: {sum(has.values())} of {quota} are in force"
    return ""


def recovered(evidence: Evidence) -> Iterator[Violation]:
    """Two leases after the last fault every agent has its part, and quotas are used up."""
    after_ms = served_from(evidence)
    if after_ms is None or after_ms > 2 * evidence.lease_ms:
        t_ms = min(evidence.faults_end_ms + 2 * evidence.lease_ms, evidence.end_ms - _STEP_MS)
        why = [text for group in evidence.table if (text := _unserved(evidence, group, t_ms))]
        when = "not until the end" if after_ms is None else f"after {after_ms / 1000:.1f} s"
        yield Violation("recovered", t_ms, f"{when}; two leases after the last fault: {why}")


def nothing_lost(evidence: PutRun) -> Iterator[Violation]:
    """At the end the table has each quota that was acknowledged last, or a later one."""
    for group, at_start in evidence.quotas.items():
        may_be = {at_start}
        for put in (put for put in evidence.puts if put.group == group):
            may_be = {put.quota} if put.acknowledged else may_be | {put.quota}
        if evidence.table.get(group) not in may_be:
            text = f"{group} has {evidence.table.get(group)}, acknowledged: {sorted(may_be)}"
            yield Violation("nothing lost", evidence.end_ms, text)


def kept_from(run: Run, part: Callable[[int, int], float], least: float, most: float) -> int | None:
    """ms after the last fault from which on a use was kept within bounds; None: not.

    Args:
        run: the evidence.
        part: from one time to another, of what should be used.
        least: of the part, in each ``KEPT_MS``.
        most: of the part.
    """
    from_ms: int | None = None
    for t_ms in range(run.faults_end_ms, run.end_ms - KEPT_MS + 1, 1000):
        if not least <= part(t_ms, t_ms + KEPT_MS) <= most:
            from_ms = None
        elif from_ms is None:
            from_ms = t_ms - run.faults_end_ms
    return from_ms


def unknown_ends(exits: Iterable[Exit], codes: Set[int] = KNOWN_CODES) -> Iterator[Violation]:
    """Processes that ended with another exit code, or said why in more than one line."""
    for each in exits:
        if each.code not in codes or "Traceback" in each.line:
            text = f"{each.process} ended with {each.code}: {each.line}"
            yield Violation("known ends", each.t_ms, text)


def known_ends(evidence: Evidence) -> Iterator[Violation]:
    """A process ends with a known exit code, and says why in one line."""
    yield from unknown_ends(evidence.exits)


def history(evidence: Run) -> Iterator[Violation]:
    """The history is intact, and its rounds give the same results again."""
    for text in evidence.history:
        yield Violation("history", evidence.end_ms, text)


CHECKS: Final[tuple[Callable[[Evidence], Iterator[Violation]], ...]] = (
    strict,
    one_content,
    one_leader,
    newest_obeyed,
    as_published,
    recovered,
    nothing_lost,
    known_ends,
    history,
)


def violations(
    evidence: Any, checks: Iterable[Callable[[Any], Iterator[Violation]]] = CHECKS
) -> list[Violation]:
    """Everything that does not hold."""
    return [violation for check in checks for violation in check(evidence)]
