"""The local driver: server and workers are processes of this machine, parameters are in shared memory."""
