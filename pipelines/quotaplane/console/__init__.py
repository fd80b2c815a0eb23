"""The terminal: tables, JSON and lines that commands print, and the parser of their options."""
