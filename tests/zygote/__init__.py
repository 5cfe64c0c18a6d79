"""Starts the services of tests as forks of a zygote: a process that has imported torch, transformers and grpc once.

`popen.Popen` takes the place of `subprocess.Popen` while tests run: a command `python -m` of one of our packages is
then a fork, any other one a fresh process. A fork takes some hundredths of a second, the imports of a worker three.

A fork is a child of the process that starts it: the zygote forks twice, and the orphan falls to whoever asked, a
subreaper for that moment. So waiting, signals, `psutil` and the processor time of children are as with a fresh one; so
are command line, environment, working directory, session, signal handlers, random seeds and file descriptors.

Not as in a fresh process: the secret of hashes is the zygote's (PYTHONHASHSEED cannot change), gRPC's core writes no
log, numpy's OpenBLAS has one thread, modules are imported already, objects at exit are not taken apart, and
/proc/PID/environ is the zygote's. What depends on that is marked `fresh`; `--fresh` starts every process afresh."""
