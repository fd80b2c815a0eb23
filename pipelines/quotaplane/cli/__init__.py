"""The command ``quotaplane`` (starts no JVM), and the ``main`` functions of scripts in jobs/."""
