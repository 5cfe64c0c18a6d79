"""The page of the API's description, in a real Chromium before a real ring."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

pytest.importorskip("selenium", reason="selenium is not installed: pip install 'signalbox[dev]'")

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.e2e.browser import IS_THERE, open_browser
from tests.e2e.conftest import StartRing

pytestmark = pytest.mark.skipif(
    not IS_THERE, reason="there is no Chromium with its driver: apt-get install chromium chromium-driver"
)


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def shown(driver: Chrome) -> list[str]:
    """Paths of the operations that are to be seen."""
    codes = driver.find_elements(By.CSS_SELECTOR, "#operations summary code")
    return [code.text for code in codes if code.is_displayed()]


def test_operations_fields_and_examples_are_shown(start_ring: StartRing) -> None:
    ring = start_ring()
    with open_browser() as driver:
        driver.get(f"{ring.url}/docs")
        wait(lambda: "/v1/chat/completions" in shown(driver))
        everything = shown(driver)
        assert {"/v1/messages", "/v1/responses", "/tokenize", "/ready"} <= set(everything)
        driver.find_element(By.ID, "find").send_keys("allowed_token_ids")
        wait(lambda: set(shown(driver)) == {"/v1/completions", "/v1/chat/completions", "/v1/responses"})
        (chat,) = [
            part
            for part in driver.find_elements(By.CSS_SELECTOR, "#operations > section > details")
            if part.is_displayed() and "/v1/chat/completions" in part.text
        ]
        chat.find_element(By.CSS_SELECTOR, "summary").click()
        wait(lambda: "curl" in chat.text)
        assert "temperature" in chat.text and "number (from 0 to 100)" in chat.text
        (messages,) = [
            part for part in chat.find_elements(By.CSS_SELECTOR, "details") if part.text.startswith("Message")
        ]
        driver.execute_script("arguments[0].open = true", messages)  # it lies far below the window
        wait(lambda: "tool_call_id" in messages.text)
        assert [each["message"] for each in driver.get_log("browser") if each["level"] == "SEVERE"] == []
