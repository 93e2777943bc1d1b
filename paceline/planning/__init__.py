"""Plans training: which machines, how many, and which strategy; with the predicted time and cost, and the reasons."""
