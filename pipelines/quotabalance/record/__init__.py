"""The record of the balancer: its tables, rounds read from them, and other decisions for these."""
