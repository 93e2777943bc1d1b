"""Which machines, how many of them, and how to distribute: what training will take, what it will cost, and why."""
