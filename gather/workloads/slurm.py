def read_sacct(path): raise NotImplementedError
def read_slurmrestd(path): raise NotImplementedError
