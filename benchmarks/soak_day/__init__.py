"""A day of the quota job's own code in half an hour: churn, kills, maintenance, a full disk."""
