"""``./spark-submit.sh demo``: the real quota job against a simulated cluster, with a report."""
