"""Events to hold episodes: what was known at each hold, and what came of it.

Other rooms use these. Each is imported from its own module, so that advice on one job loads
neither the reader of logs nor the pass over them:

- `keeper.EpisodeKeeper`: keep a store's hold episodes up to date while its logs are read
- `episode_store.KeptEpisodes`, `kept_of`: look up the hold episodes of a store
- `timeline.store_timeline`, `log_timeline`: all events of a store, or of log files, in order
- `samples.collect`, `Samples`: hold episodes of a timeline in memory
- `export.export`, `ExportedEpisodes`: the same as files, for training
- `features.HOLD_FEATURES`, `tensors.TensorSpec`, `outcomes.OUTCOMES`: what a sample consists of
- `job_numbers`: access point, cluster and proc in one number
"""
