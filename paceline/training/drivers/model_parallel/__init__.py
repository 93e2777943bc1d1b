"""One network divided among several processes of this machine, with torch.distributed."""
