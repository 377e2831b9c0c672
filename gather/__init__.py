"""HTCondor's words: event logs, job ads and workload logs, into events in the store."""
