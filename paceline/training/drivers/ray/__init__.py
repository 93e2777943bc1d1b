"""The Ray driver: the engine's server and its workers are actors of a Ray cluster. Needs `paceline[ray]`."""
