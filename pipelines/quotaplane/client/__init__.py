"""The broker's side: usage reports out, limits in, and the answer to "what may I use now?"."""
