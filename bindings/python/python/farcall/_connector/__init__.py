"""The connector: a process in which a server reads addresses outside of Farcall for its users.

A server starts it as `python -m farcall._connector`, without rights and with an environment of its
own. It learns the addresses that it may open, and their credentials, as its first message. It opens
no other address, whatever a request or a source says.
"""
