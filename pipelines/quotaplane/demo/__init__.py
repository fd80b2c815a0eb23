"""``./spark-submit.sh demo``: the real job against a simulated cluster, and its report."""
