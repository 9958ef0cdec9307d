"""Arrow Flight and Farcall: what `farcall gateway flight` runs.

`gateway` offers functions of Farcall as exchanges of record batches, and `service` calls a Flight
service from functions that `farcall serve` serves. `arrays` converts between columns and arrays.
"""
