"""The quota step: ``(state, events, round) -> (state, outcome)`` of one shard. Pure."""
