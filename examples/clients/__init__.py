"""Short programs, one for each place where scores come from; README.md says which."""
