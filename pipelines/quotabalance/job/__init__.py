"""The balance job: load reports in, plans of moves and splits out."""
