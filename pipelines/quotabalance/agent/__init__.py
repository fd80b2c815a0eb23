"""The balancer's programs beside the job: the collector of load, and the executor of plans."""
