"""What programs share that run beside a cluster: pacing, failures told once, doubted answers."""
