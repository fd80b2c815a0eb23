"""The estimator: from what reports measured to what brokers would use if nothing limited them."""
