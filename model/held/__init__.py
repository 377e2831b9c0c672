"""Release or not: models for held jobs, their training and their evaluation."""
