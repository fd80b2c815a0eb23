"""Expire, compact and vacuum the history; safe while the quota job runs."""

from __future__ import annotations

import sys

from quotaplane.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["maintain", *sys.argv[1:]]))
