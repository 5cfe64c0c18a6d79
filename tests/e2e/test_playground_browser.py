"""The playground with a model that reasons and calls: a real Chromium before a frontend whose model says what is
written here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

pytest.importorskip("selenium", reason="selenium is not installed: pip install 'signalbox[dev]'")

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from tests.contract.agents.model import make_directory
from tests.contract.agents.scripted import ScriptedModel, scripted_model, think, write_call
from tests.e2e.browser import IS_THERE, open_browser
from tests.e2e.test_page_browser import HTML, fill, text_of, wait, wait_for_figures

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not IS_THERE, reason="there is no Chromium with its driver: apt-get install chromium chromium-driver"
    ),
]

TOOLS = [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
TURNS = (
    think(f"I look. {HTML}") + f"Let me see. {HTML}\n" + write_call("weather", city=f"Bonn {HTML}"),
    think("Sunny.") + "It is sunny.",
)
DEFAULTS = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "max_new_tokens": 77}


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[ScriptedModel]:
    directory = make_directory(tmp_path / "model")
    (directory / "generation_config.json").write_text(json.dumps(DEFAULTS))
    async with scripted_model(directory) as model:
        model.serve(lambda prompt: TURNS[min(prompt.count("<|im_start|>assistant"), len(TURNS)) - 1])
        yield model


async def drive(model: ScriptedModel, steps: Callable[[Chrome], None], **window: object) -> None:
    """Runs the steps in a thread beside the frontend. The scripted scheduler has no board; that, and requests that
    are refused, is all that the browser may complain of."""

    def run() -> None:
        with open_browser(**window) as driver:  # type: ignore[arg-type]
            driver.get(f"{model.url}/")
            wait(lambda: text_of(driver, "model") == "toy")
            driver.find_element(By.CSS_SELECTOR, "input[value=chat]").send_keys(" ")
            steps(driver)
            assert driver.execute_script("return window.hit === undefined")
            assert (
                driver.execute_script(
                    "return document.querySelectorAll('#output img, #output script').length"
                )
                == 0
            )
            severe = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
            expected = ("/board/events", "400 (Bad Request)")
            assert [message for message in severe if not any(word in message for word in expected)] == []

    await asyncio.to_thread(run)


def open_tools(driver: Chrome) -> None:
    driver.execute_script("document.getElementById('tools-field').open = true")
    fill(driver, "tools", json.dumps(TOOLS))


def say(driver: Chrome, text: str) -> None:
    fill(driver, "prompt", text)
    driver.find_element(By.ID, "run").click()
    wait_for_figures(driver)


def test_files_are_small() -> None:
    """Each script of the page fits a few screens."""
    web = Path(__file__).parents[2] / "frontend_svc" / "api" / "page" / "web"
    assert all(len(path.read_text().splitlines()) < 300 for path in web.glob("*.js") if path.stem != "uplot")


async def test_a_call_its_result_and_the_answer(model: ScriptedModel) -> None:
    """Reasoning is folded, a call is a block, and its result goes back; whatever the model says is text."""

    def steps(driver: Chrome) -> None:
        open_tools(driver)
        say(driver, "How is the weather?")
        (turn,) = driver.find_elements(By.CSS_SELECTOR, ".turn:has(.call)")
        folded = turn.find_element(By.TAG_NAME, "details")
        assert folded.get_attribute("open") is None
        assert folded.find_element(By.TAG_NAME, "summary").text.startswith("Reasoning, ")
        assert f"I look. {HTML}" in str(folded.get_attribute("textContent"))
        assert f"Let me see. {HTML}" in turn.text
        call = turn.find_element(By.CSS_SELECTOR, ".call")
        assert call.find_element(By.TAG_NAME, "code").text == "weather"
        told = call.find_element(By.TAG_NAME, "pre").text
        assert json.loads(told) == {"city": f"Bonn {HTML}"} and told.startswith("{\n  ")
        call.find_element(By.TAG_NAME, "textarea").send_keys("sunny, 20 degrees")
        driver.find_element(By.ID, "results").send_keys(" ")
        wait_for_figures(driver)
        wait(lambda: "It is sunny." in driver.find_elements(By.CSS_SELECTOR, ".turn")[-1].text)
        assert not driver.find_element(By.ID, "results").is_displayed()

    await drive(model, steps)
    first, second = model.prompts
    assert '"name": "weather"' in first
    assert "<tool_response>\nsunny, 20 degrees\n</tool_response>" in second
    assert "I look." in second, "reasoning goes back with its turn"


async def test_somebody_goes_on_without_a_result(model: ScriptedModel) -> None:
    def steps(driver: Chrome) -> None:
        open_tools(driver)
        say(driver, "How is the weather?")
        say(driver, "Never mind.")
        assert driver.find_elements(By.CSS_SELECTOR, ".turn")[-1].text.endswith("It is sunny.")

    await drive(model, steps)
    assert "Never mind.<|im_end|>" in model.prompts[1]


async def test_what_the_model_does_by_itself_is_shown(model: ScriptedModel) -> None:
    """Its defaults stand in the empty fields, and its thinking can be switched off."""

    def steps(driver: Chrome) -> None:
        shown = {
            name: driver.find_element(By.ID, name).get_attribute("placeholder")
            for name in ("temperature", "top_k")
        }
        assert shown == {"temperature": "0.6", "top_k": "20"}
        assert driver.find_element(By.ID, "temperature").get_attribute("value") == ""
        open_tools(driver)
        Select(driver.find_element(By.ID, "thinking")).select_by_visible_text("off")
        say(driver, "Hi.")

    await drive(model, steps)
    assert model.prompts[0].endswith("<think>\n\n</think>\n\n")


async def test_functions_that_are_no_json_are_named(model: ScriptedModel) -> None:
    def steps(driver: Chrome) -> None:
        open_tools(driver)
        fill(driver, "tools", "[{")
        fill(driver, "prompt", "Hi.")
        driver.find_element(By.ID, "run").click()
        assert "The functions are not JSON" in wait(lambda: text_of(driver, "problem"))
        fill(driver, "tools", json.dumps([{"parameters": {}}]))
        driver.find_element(By.ID, "run").click()
        assert "tools" in wait(
            lambda: "JSON" not in text_of(driver, "problem") and text_of(driver, "problem")
        )
        assert driver.find_elements(By.CSS_SELECTOR, ".turn") == []
        assert driver.find_element(By.ID, "prompt").get_attribute("value") == "Hi."

    await drive(model, steps)


@pytest.mark.parametrize("width", [360, 1400])
async def test_a_call_is_not_wider_than_the_screen(model: ScriptedModel, width: int) -> None:
    def steps(driver: Chrome) -> None:
        open_tools(driver)
        say(driver, "How is the weather?")
        driver.execute_script("document.querySelector('.turn details').open = true")
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width

    await drive(model, steps, width=width, height=900)
