"""The hook that a user's job imports: asks the program to save before work is lost."""
