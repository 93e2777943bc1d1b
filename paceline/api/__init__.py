"""The public functions, one file per verb: `import paceline` offers them, and the command line calls them."""
