"""Starts the services of tests as forks of a zygote: a process that has imported torch, transformers and grpc once.

`popen.Popen` takes the place of `subprocess.Popen` while tests run: a command `python -m` of one of our packages becomes
a fork, any other one a fresh process. A fork costs a twentieth of a second of a core, the imports of a worker three.

A fork is a child of the process that starts it (the zygote forks twice, and the orphan falls to whoever asked, a
subreaper for that moment), so waiting, signals, `psutil` and the processor time of children are as with a fresh one. So
are command line, environment, working directory, session, signal handlers, random seeds and file descriptors.

What is not as in a fresh process: PYTHONHASHSEED's secret is that of the zygote, gRPC's core writes no log, OpenBLAS has
one thread, and modules are imported already. What depends on that is tested with the marker `fresh`; `--fresh` starts
every process afresh."""
