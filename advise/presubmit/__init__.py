"""Before a job is submitted: lint, sizes and the risk of failing."""
