"""``python -m quotaplane``: the light command without an installed console script."""

from __future__ import annotations

import sys

from quotaplane.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
