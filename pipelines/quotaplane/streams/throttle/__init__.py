"""The throttle job: requests in, decisions out; and dry runs on recorded requests."""
