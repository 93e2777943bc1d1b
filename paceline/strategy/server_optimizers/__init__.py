"""The server's optimizers: the rules that one process has too, and any class of `torch.optim`."""
