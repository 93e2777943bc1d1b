"""The local driver: server and workers are processes on this machine, with parameters in shared memory."""
