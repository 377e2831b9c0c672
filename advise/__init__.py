"""A job id to an Advice, and the command line that shows it."""
