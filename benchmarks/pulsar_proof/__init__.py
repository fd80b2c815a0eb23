"""The proof on a real cluster: stock Pulsar's calculator and ours, the same load, side by side."""
