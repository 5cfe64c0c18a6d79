"""A real Chromium, driven through chromedriver: Debian's packages chromium and chromium-driver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
IS_THERE = DRIVER is not None and BROWSER is not None


@contextmanager
def open_browser(
    width: int = 1400, height: int = 1000, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Chrome]:
    """A window of its own, with nothing kept from others; `scheme` is what the system is said to prefer."""
    options = ChromeOptions()
    options.binary_location = str(BROWSER)
    # Containers have neither the namespaces for Chromium's sandbox nor room in /dev/shm.
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(str(DRIVER)))
    try:
        # A headless window has a least width of 500; emulated metrics have none.
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        yield driver
    finally:
        driver.quit()
