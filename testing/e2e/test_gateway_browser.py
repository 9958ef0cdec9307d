"""A web page in a real browser solves a linear system through `farcall gateway http`."""

import functools
import http.server
import threading

import numpy as np
import pytest
from browsers import browser
from gateways import bearer, callers, gateway
from selenium.webdriver.support.wait import WebDriverWait
from servers import LIBRARIES, ROOT, add_tokens

PAGE = ROOT / "examples" / "web" / "solve.html"


@pytest.fixture
def site():
    """The folder of the page, as a web site: its origin."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=PAGE.parent)
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{site.server_port}"
    site.shutdown()
    site.server_close()


def solve(driver, page, gateway, token, system):
    """What the page shows after it has solved the system."""
    driver.get(page)
    for name, value in [("gateway", gateway), ("token", token), ("system", system)]:
        field = driver.find_element("id", name)
        field.clear()
        field.send_keys(value)
    driver.find_element("id", "solve").click()
    shown = lambda driver: driver.find_element("id", "answer").text  # noqa: E731
    return WebDriverWait(driver, 60).until(shown)


def test_a_web_page_solves_a_linear_system(start, site, tmp_path):
    [token] = add_tokens(tmp_path / "tokens", "alice")
    audit = tmp_path / "audit"
    options = ["--tokens", str(tmp_path / "tokens"), "--audit", str(audit)]
    server = start(LIBRARIES / "lapack.idl", options=options)
    page, system = f"{site}/{PAGE.name}", "4 1 2 = 1\n1 3 0 = 2\n2 0 5 = 3"
    a, b = np.array([[4, 1, 2], [1, 3, 0], [2, 0, 5.0]]), np.array([1, 2, 3.0])
    driver = browser(tmp_path / "profile")
    try:
        with gateway("http", server.address, "--allow-origin", site) as http:
            text = solve(driver, page, http.url, token, system)
            assert text.startswith("x ="), (text, driver.get_log("browser"))
            x = [float(word) for word in text.removeprefix("x =").split()]
            assert np.allclose(x, np.linalg.solve(a, b))
            assert callers(audit, "lapack/dgesv", 1) == ["alice"]
            text = solve(driver, page, http.url, "guess", system)
            assert "the token is unknown to this server" in text
            singular = solve(driver, page, http.url, token, "1 2 = 3\n2 4 = 5")
            assert singular == "the matrix is singular"
        # A gateway that does not know the page.
        with gateway("http", server.address) as http:
            text = solve(driver, page, http.url, token, system)
            assert "does not allow this page" in text
            # Without a page in between, the same request is good.
            body = {"n": 1, "nrhs": 1, "a": [[4]], "lda": 1, "b": [[2]], "ldb": 1}
            status, answer, _ = http.request("/v1/call/dgesv", body, bearer(token))
            assert (status, answer["b"]) == (200, [[0.5]])
            # Those of the page are two: it made no other call.
            assert callers(audit, "lapack/dgesv", 3) == ["alice"] * 3
    finally:
        driver.quit()
