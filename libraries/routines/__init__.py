"""Descriptions of library routines, each for all its precisions."""
