"""Figures of a study, one file each: what is drawn, how it is read, and the same numbers as a table."""
