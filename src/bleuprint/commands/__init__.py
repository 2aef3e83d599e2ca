"""The commands of the command line, by what they are for: each reads params.yaml and calls one function."""
