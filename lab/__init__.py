"""Makes hold episodes: real ones on a real pool, and simulated ones at scale."""
