"""First drafts of interfaces: `farcall idl draft FILE...`.

A reader for each kind of source (`c`, `fortran`, `python`) makes functions of it, and `form` writes
them in the interface language. What a source does not say is marked with a question. A reader never
runs the code of a library, except that it imports a Python module.
"""
