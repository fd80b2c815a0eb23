"""Settings of the balancer (interim: the stream's file replaces it)."""

from __future__ import annotations

from pydantic import Field

from quotaplane.settings.balance_agents import Collect, Execute
from quotaplane.settings.section import Section


class Balance(Section):
    """Topics of the balancer, and its programs beside the job."""

    loads_topic: str = Field(default="load-reports")
    plans_topic: str = Field(default="balance-plans")
    collect: Collect = Collect()
    execute: Execute = Execute()
