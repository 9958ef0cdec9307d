"""A real browser for tests of web pages."""

import os
import shutil
import subprocess

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from servers import ROOT


def browser(profile):
    """A headless Chromium, which `scripts/setup browser` installs."""
    setup = ROOT / "scripts" / "setup"
    said = subprocess.run([setup, "browser"], capture_output=True, text=True, check=False)
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip(f"Chromium is not installed: {said.stderr.strip()}")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for word in ["--headless=new", "--disable-gpu", f"--user-data-dir={profile}"]:
        options.add_argument(word)
    if os.geteuid() == 0:
        # Chromium's sandbox does not start as root.
        options.add_argument("--no-sandbox")
        options.add_argument("--disable-dev-shm-usage")
    return webdriver.Chrome(options=options, service=Service(driver))
