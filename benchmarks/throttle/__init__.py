"""The throttle laws: how fast they answer, and how each answers the same burst."""
