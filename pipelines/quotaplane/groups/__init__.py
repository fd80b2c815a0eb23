"""Resource groups: names, trees, options, scopes (users and clients), texts of quotas. Pure."""
