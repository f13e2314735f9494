"""One module for each subcommand of `corag`: what it takes, and which package does its work."""
