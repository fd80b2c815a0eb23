"""The proof on a real Kafka cluster: stock client quotas and ours, the same load, side by side."""
