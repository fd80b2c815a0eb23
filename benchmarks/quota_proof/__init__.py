"""Shared by the proofs on real clusters: load, records, figures, plots, and parts of the page."""
