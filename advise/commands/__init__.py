"""One module per verb of the command line; each imports only what it needs."""
