"""Shared parts of long-running programs: request rates, failure logs, doubtful answers."""
