"""Will it fail: models of jobs before and while they run, their sizes and profiles."""
