"""Runs a program in a network of its own, and cuts the first long answer that it gets.

    unshare --net --map-root-user python cut.py BYTES DESCRIPTOR... -- PROGRAM

The program gets the host and the port of a proxy. The descriptors are connections to its server.
"""

import socket
import subprocess
import sys
import threading

most = int(sys.argv[1])
split = sys.argv.index("--")
servers = [socket.socket(fileno=int(word)) for word in sys.argv[2:split]]
cut = threading.Lock()


def carry(source, target, is_answer):
    """Carries bytes one way, until the first answer is too long."""
    carried = 0
    while piece := source.recv(1 << 16):
        carried += len(piece)
        if is_answer and carried > most and cut.acquire(blocking=False):
            print("cut")
            break
        target.sendall(piece)
    for each in (source, target):
        each.shutdown(socket.SHUT_RDWR)


def accept(listener):
    """Gives each connection of the program one of the server."""
    for server in servers:
        program, _ = listener.accept()
        for words in ((program, server, False), (server, program, True)):
            threading.Thread(target=carry, args=words, daemon=True).start()


threading.excepthook = lambda _: None  # The other direction has ended.
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=accept, args=(listener,), daemon=True).start()
port = str(listener.getsockname()[1])
ran = subprocess.run([*sys.argv[split + 1 :], "127.0.0.1", port], check=False, timeout=60)
sys.exit(ran.returncode)
