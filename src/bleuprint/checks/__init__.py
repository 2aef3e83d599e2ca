"""`doctor`: what is wrong with machine or project."""
