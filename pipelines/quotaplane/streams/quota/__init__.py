"""The quota job: reports and changes of groups in, limits out."""
