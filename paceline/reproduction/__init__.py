"""Published studies to reproduce: each is an experiment file and a module that draws the conclusions."""
