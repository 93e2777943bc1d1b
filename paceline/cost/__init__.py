"""What training will cost in time: compute and communication models, fitted and in closed form."""
