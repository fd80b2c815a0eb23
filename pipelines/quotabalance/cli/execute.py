"""``quotaplane balance execute``: makes the moves and splits of a plan on a Pulsar cluster."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any, Final

from quotabalance.settings import BalanceSettings, load_balance_settings, pulsar_cluster
from quotaplane.agents.conditions import Conditions
from quotaplane.cli.agent_process import print_line, print_status, stop_at_signal
from quotaplane.console.terminal import inform, warn
from quotaplane.errors import ConfigError, QuotaplaneError
from quotaplane.settings import PulsarTransport

if TYPE_CHECKING:
    from quotabalance.agent.executor import PlanVerdict
    from quotabalance.agent.plans_listener import PlanMessage, PlansListener
    from quotaplane.pulsar_admin.rest import Rest

_EPILOG: Final = """\
Without --plan and --auto it changes nothing: it prints the newest plan's moves and splits, a JSON
object per line, and at last whether the plan may be executed, and its hash.

--plan HASH approves a plan: exactly that plan is executed, or nothing, if the load has moved on
since (exit code 8). --auto executes every plan of a job with balance.mode: auto, until SIGTERM or
Ctrl-C. A signal lets moves that are under way end, and says which were not begun; a second one ends
it at once. See docs/operate/balance-executor.md.
"""


class PlanRefusedError(QuotaplaneError):
    """A plan of the balancer can't be executed: the load has moved on. Nothing was done."""

    exit_code = 8


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("--conf", metavar="FILE", required=True, help="the balance job's settings")
    parser.add_argument(
        "--plan", metavar="HASH", help="execute the plan with this hash; needs --why"
    )
    parser.add_argument("--auto", action="store_true", help="execute all plans of mode auto")
    parser.add_argument("--why", metavar="TEXT", default="", help="the reason, for the record")


def run(args: argparse.Namespace) -> int:
    """Show a plan, execute it, or follow all plans; 1 if something of a plan was not done.

    Raises:
        ConfigError: the settings or options are wrong.
        InputError: there is no such plan.
        PlanRefusedError: the load has moved on.
        ClusterError: the cluster can't be reached, or refuses us.
        TransportError: the plans can't be read.
    """
    if args.plan and args.auto:
        raise ConfigError("--plan and --auto exclude each other")
    if args.plan and not args.why.strip():
        raise ConfigError("--plan needs --why TEXT: the reason is recorded")
    settings = load_balance_settings(args.conf)
    return asyncio.run(_execute(settings, pulsar_cluster(settings.transport), args))


async def _execute(settings: BalanceSettings, transport: PulsarTransport, args: Any) -> int:
    from quotabalance.agent.plans_listener import PlansListener
    from quotaplane.pulsar_admin.rest import Rest
    from quotaplane.transport import open_broker_link
    from quotaplane.transport.base import Topics

    stop = stop_at_signal()
    topics = Topics(settings.balance.loads_topic, settings.balance.plans_topic)
    async with Rest(transport, conditions=Conditions(warn)) as rest:
        link = await asyncio.to_thread(
            open_broker_link, transport, limits_from="earliest", topics=topics
        )
        try:
            balance = settings.balance
            max_age_s = balance.execute.max_plan_age_s
            listener = PlansListener(link, rest.conditions, max_age_s, signing=balance.signing)
            await listener.catch_up()
            if args.auto:
                return await _follow(settings, rest, listener, stop, args.why)
            if args.plan:
                plan = listener.with_hash(args.plan)
                return await _approved(settings, rest, plan, stop, args.why)
            return await _show(settings, rest, listener)
        finally:
            await asyncio.to_thread(link.close)


async def _show(settings: BalanceSettings, rest: Rest, listener: PlansListener) -> int:
    """The dry run: print the newest plan with something to do, and whether it may be executed."""
    from quotabalance.agent.executor import Executor

    plan = listener.newest_to_do
    if plan is None:
        inform("there is no plan with anything to do on the topic")
        return 0
    executor = Executor(settings.balance, rest, await _cluster(rest), None, warn)
    verdict = await executor.check(plan)
    check = verdict.check
    for split, why in zip(plan.decisions.splits, check.of_splits, strict=True):
        print_line({"split": split.bundle, **_fields(split, 1), "refused": why})
    for move, is_done, why in zip(
        plan.decisions.moves, check.done.tolist(), check.of_moves, strict=True
    ):
        print_line({"move": move.bundle, **_fields(move, 1), "done": is_done, "refused": why})
    print_line(_summary(plan, verdict))
    if not verdict.whole:
        inform(f"to execute it: add --plan {plan.plan_hash} --why TEXT")
    return 0


async def _approved(
    settings: BalanceSettings, rest: Rest, plan: PlanMessage, stop: asyncio.Event, why: str
) -> int:
    from quotabalance.agent.action_record import ActionRecord
    from quotabalance.agent.executor import Executor
    from quotabalance.record.outcomes import ALREADY, DONE

    record = await asyncio.to_thread(ActionRecord, settings.history, why, "manual")
    try:
        executor = Executor(settings.balance, rest, await _cluster(rest), record, warn)
        verdict = await executor.check(plan)
        if verdict.whole:
            why = await executor.refuse(plan, verdict)
            raise PlanRefusedError(f"plan {plan.plan_hash} refused, nothing was done: {why}")
        print_line(_summary(plan, verdict))
        counts = await executor.execute(
            plan, verdict, lambda: "the executor was stopped" if stop.is_set() else ""
        )
        print_line({"plan": plan.plan_hash, **executor.status()}, stamped=True)
        return 0 if set(counts) <= {DONE, ALREADY, f"split {DONE}"} else 1
    finally:
        await asyncio.to_thread(record.close)


async def _follow(
    settings: BalanceSettings, rest: Rest, listener: PlansListener, stop: asyncio.Event, why: str
) -> int:
    from quotabalance.agent.action_record import ActionRecord
    from quotabalance.agent.executor import Executor
    from quotabalance.agent.plan_follower import PlanFollower

    record = await asyncio.to_thread(ActionRecord, settings.history, why, "auto")
    try:
        executor = Executor(settings.balance, rest, await _cluster(rest), record, warn)
        follower = PlanFollower(executor, listener, warn)
        lines = asyncio.create_task(print_status(follower.status))
        await follower.run(stop)
        lines.cancel()
        print_line(follower.status(), stamped=True)
        return 0
    finally:
        await asyncio.to_thread(record.close)


async def _cluster(rest: Rest) -> str:
    from quotaplane.pulsar_admin.resource_groups import read_runtime

    return (await read_runtime(rest)).cluster


def _fields(decision: Any, first: int) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in list(decision._asdict().items())[first:]
    }


def _summary(plan: PlanMessage, verdict: PlanVerdict) -> dict[str, Any]:
    return {
        "plan": plan.plan_hash,
        "epoch": plan.epoch,
        "seq": plan.seq,
        "mode": plan.mode,
        "moves": len(plan.decisions.moves),
        "splits": len(plan.decisions.splits),
        "done": int(verdict.check.done.sum()),
        "bytes_per_s": round(sum(move.bytes_per_s for move in plan.decisions.moves), 1),
        "busiest_before": round(verdict.check.peak_before, 3),
        "busiest_after": round(verdict.check.peak_after, 3),
        "refused": list(verdict.whole),
    }
