"""Servers that take over from one that asks for TLS or tokens."""

import subprocess

import pytest
from servers import FARCALL, NAP, ServerProcess, add_tokens, wait_until


@pytest.mark.parametrize("way", ["tls", "tokens", "other token", "other token, Unix socket"])
def test_a_server_that_asks_for_tls_or_tokens_is_replaced(tmp_path, way):
    idl, folder = tmp_path / "nap.idl", tmp_path / "access"
    idl.write_text(NAP)
    if way == "tls":
        make = [FARCALL, "access", "certificate", "server", folder, "127.0.0.1"]
        subprocess.run(make, check=True, capture_output=True, timeout=30)
        options, proof = ["--tls", str(folder)], {"authorities": folder / "authority.pem"}
    else:
        [token] = add_tokens(folder, "alice")
        options, proof = ["--tokens", str(folder)], {"token": token}
    if way.endswith("Unix socket"):
        options.extend(["--unix", str(tmp_path / "socket")])
    environment = {"FARCALL_TOKEN": token} if way.startswith("other token") else {}
    first = ServerProcess(idl, options=options)
    try:
        client = first.connect(**proof)
        running = client.function("nap").call_async(3000)
        wait_until(first.napping, what="the running call")
        listen = first.address.split("//")[1]
        takes = [*options, "--takeover"]
        second = ServerProcess(idl, listen=listen, options=takes, environment=environment)
        try:
            assert running.result(timeout=30).slept is not None
            assert first.process.wait(30) == 0
            assert client.function("nap")(1).slept is not None
        finally:
            second.stop()
    finally:
        first.stop()
