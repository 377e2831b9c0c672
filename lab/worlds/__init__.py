"""Simulated access points at the level of facts, each with a character of its own: worlds.

A model that has seen one pool learns that pool. One that has seen thousands of different ones has
to learn how evidence works: what it means that mates came back, how long ago, on which execution
point. `character.py` draws what a world is like, `causes.py` says when a cause strikes, `life.py`
lets jobs run into it and owners react, and `questions.py` turns worlds into training rows. Nothing
here is fitted to a recording.
"""
