"""``python -m quotaplane``: the command ``quotaplane`` if its console script is not installed."""

from __future__ import annotations

import sys

from quotaplane.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
