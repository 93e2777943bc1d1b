"""How a distributed run is carried out: processes of this machine."""
