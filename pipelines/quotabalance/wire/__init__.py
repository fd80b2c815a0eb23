"""The bytes on the balancer's topics: load reports and plans, to and from Arrow."""
