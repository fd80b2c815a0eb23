"""Values from outside, read strictly: JSON, YAML, numbers, times and paths."""
