"""The quota job under more load than it can carry, on a real Kafka: ``make overload``."""
