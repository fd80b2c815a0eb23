"""The history: Delta tables of everything that came in, was decided and went out."""
