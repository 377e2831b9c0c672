def read_condor_history(path): raise NotImplementedError
