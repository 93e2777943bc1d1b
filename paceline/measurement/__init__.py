"""Where the time of a training iteration goes, layer by layer, adding up to the wall clock."""
