"""What makes stock brokers obey: limits of brokers become rates of topics (docs/enforcer.md)."""
