"""The page as people use it: a real Chromium before a real ring with the demo model."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("selenium", reason="selenium is not installed: pip install 'signalbox[dev]'")

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from signalbox.cli.admin_client import admin_client
from signalbox.client import Client
from signalbox.v1 import from_worker_pb2, generation_pb2, shared_pb2
from tests.e2e.browser import IS_THERE, open_browser
from tests.e2e.conftest import RunningRing, StartRing
from tests.ports import free_ports
from tests.scheduler_svc.attached import dial, make_hello

pytestmark = pytest.mark.skipif(
    not IS_THERE, reason="there is no Chromium with its driver: apt-get install chromium chromium-driver"
)
WAIT_S = 30
HTML = '<img src=x onerror="window.hit = 1"><script>window.hit = 1</script><b>def f('


@pytest.fixture(scope="module")
def metrics_address() -> str:
    """Of the scheduler."""
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture
def page_ring(start_ring: StartRing, metrics_address: str) -> RunningRing:
    return start_ring("--scheduler-set", f"metrics={metrics_address}", "--scheduler-set", "policy=priority")


@pytest.fixture
def page(page_ring: RunningRing) -> Iterator[Chrome]:
    """The page, with a model to ask and a board that is live. Whatever a test does, the browser has nothing to complain
    of: no error of a script, nothing that the Content-Security-Policy had to stop."""
    with open_browser() as driver:
        load(driver, page_ring)
        yield driver
        assert [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def load(driver: Chrome, ring: RunningRing) -> None:
    driver.get(f"{ring.url}/")
    wait(lambda: text_of(driver, "model") == "demo")
    wait(lambda: text_of(driver, "link") == "live, 1 worker")
    fill(driver, "temperature", "0")


def wait(condition: Callable[[], Any]) -> Any:
    """What `condition` gives as soon as it is true."""
    give_up = time.monotonic() + WAIT_S
    while not (value := condition()):
        assert time.monotonic() < give_up, "did not become true"
        time.sleep(0.02)
    return value


def text_of(driver: Chrome, name: str) -> str:
    return str(
        driver.execute_script("return document.getElementById(arguments[0]).textContent", name)
    ).strip()


def fill(driver: Chrome, name: str, text: str) -> None:
    element = driver.find_element(By.ID, name)
    element.clear()
    element.send_keys(text)


def ask(driver: Chrome, prompt: str, max_tokens: int) -> str:
    """Runs to the end; returns the line of figures."""
    fill(driver, "prompt", prompt)
    fill(driver, "max_tokens", str(max_tokens))
    driver.find_element(By.ID, "run").click()
    return wait_for_figures(driver)


def wait_for_figures(driver: Chrome) -> str:
    wait(lambda: driver.find_element(By.ID, "run").is_enabled())
    assert text_of(driver, "problem") == ""
    return str(wait(lambda: text_of(driver, "figures")))


# ---- playground


def test_a_completion_streams(page: Chrome) -> None:
    page.execute_script(
        "window.grown = 0; new MutationObserver(() => { window.grown += 1; })"
        ".observe(document.getElementById('output'), {childList: true, subtree: true})"
    )
    figures = ask(page, "def quicksort(", 40)
    assert re.match(r"\d+ \+ \d+ tokens · first after \d+ ms · ", figures)
    assert page.execute_script("return window.grown") > 5
    output = text_of(page, "output")
    assert output.startswith("def quicksort(")
    assert len(output) > 40


@pytest.mark.slow
def test_a_setting_changes_the_completion(page: Chrome) -> None:
    assert "+ 3 tokens" in ask(page, "import os\n", 3)
    short = text_of(page, "output")
    assert "+ 9 tokens" in ask(page, "import os\n", 9)
    long = text_of(page, "output")
    assert long.startswith(short)
    assert len(long) > len(short)


@pytest.mark.slow
def test_a_stop_string_ends_the_completion(page: Chrome) -> None:
    ask(page, "def quicksort(", 24)
    stop = text_of(page, "output").removeprefix("def quicksort(")[6:9]
    page.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    fill(page, "stop_strings", stop)
    assert ask(page, "def quicksort(", 24).endswith("end: stop")
    assert stop not in text_of(page, "output").removeprefix("def quicksort(")


@pytest.mark.slow
def test_a_schema_shapes_the_output_and_a_broken_one_is_named(page: Chrome) -> None:
    page.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    fill(page, "schema", '{"enum": ["red", "green"]}')
    ask(page, "a colour: ", 16)
    assert text_of(page, "output").removeprefix("a colour: ") in ('"red"', '"green"')
    fill(page, "schema", "{")
    page.find_element(By.ID, "run").click()
    assert "JSON schema is not JSON" in wait(lambda: text_of(page, "problem"))


@pytest.mark.slow
def test_chat_keeps_its_turns(page: Chrome) -> None:
    page.find_element(By.CSS_SELECTOR, "input[value=chat]").send_keys(Keys.SPACE)
    ask(page, "def first(", 8)
    ask(page, "def second(", 8)
    turns = [turn.text.split("\n")[0] for turn in page.find_elements(By.CSS_SELECTOR, ".turn")]
    assert turns == ["user", "assistant", "user", "assistant"]


@pytest.mark.slow
def test_the_keyboard_runs_and_stops(page: Chrome) -> None:
    """The key is pressed inside the page: from here it may come only after the last token."""
    fill(page, "max_tokens", "600")
    page.execute_script(
        "new MutationObserver((_, watch) => {"
        " if (document.getElementById('output').textContent.trim().length < 9) return;"
        " watch.disconnect();"
        " document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}));"
        "}).observe(document.getElementById('output'), {childList: true, subtree: true})"
    )
    prompt = page.find_element(By.ID, "prompt")
    prompt.clear()
    prompt.send_keys("x = [", Keys.CONTROL, Keys.ENTER)
    assert wait_for_figures(page).endswith("end: stopped here")
    assert len(text_of(page, "output")) > 8


@pytest.mark.slow
def test_html_stays_text(page: Chrome) -> None:
    ask(page, HTML, 12)
    assert text_of(page, "output").startswith(HTML)
    assert (
        page.execute_script(
            "return document.querySelectorAll('#output img, #output script, #output b').length"
        )
        == 0
    )
    assert page.execute_script("return window.hit === undefined")


@pytest.mark.slow
def test_an_injected_script_does_not_run(page_ring: RunningRing) -> None:
    """Should text ever become HTML, the policy is behind it."""
    with open_browser() as driver:
        driver.get(f"{page_ring.url}/")
        driver.execute_script("document.body.insertAdjacentHTML('beforeend', arguments[0])", HTML)
        wait(
            lambda: any("Content Security Policy" in entry["message"] for entry in driver.get_log("browser"))
        )
        assert driver.execute_script("return window.hit === undefined")


# ---- board


def scrape(url: str, name: str) -> int:
    """The sum of a counter's samples."""
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", httpx.get(f"{url}/metrics").text, re.MULTILINE)
    assert found, f"{name} is not there"
    return int(sum(map(float, found)))


def number_in(text: str) -> int:
    return int(text.replace(",", "").split()[0])


async def run_load(ring: RunningRing) -> None:
    async with Client(ring.grpc) as client:
        options: dict[str, Any] = {"max_tokens": 60, "temperature": 0, "ignore_eos": True}
        prompts = ["import os\nimport sys\n" * 6 + f"def f{number}(" for number in range(24)]
        await asyncio.gather(*(client.generate(prompt, **options).result() for prompt in prompts))


def test_the_board_moves_and_agrees_with_the_metrics(
    page: Chrome, page_ring: RunningRing, metrics_address: str
) -> None:
    output_tokens = "signalbox_frontend_output_tokens_total"
    before, received = number_in(text_of(page, "tile-output-more")), scrape(page_ring.url, output_tokens)
    page.execute_script(
        "window.seen = {running: 0, rate: 0, rows: 0};"
        "const read = (id) => parseInt(document.getElementById(id).textContent.replaceAll(',', '')) || 0;"
        "setInterval(() => {"
        "  seen.running = Math.max(seen.running, read('tile-running'));"
        "  seen.rate = Math.max(seen.rate, read('tile-output'));"
        "  seen.rows = Math.max(seen.rows, document.querySelectorAll('#requests .phase').length);"
        "}, 50)"
    )
    asyncio.run(run_load(page_ring))
    asyncio.run(run_load(page_ring))  # from the cache
    wait(lambda: text_of(page, "tile-running") == "0")
    scheduler = f"http://{metrics_address}"
    told = scrape(scheduler, "signalbox_scheduler_output_tokens_total")
    wait(lambda: number_in(text_of(page, "tile-output-more")) == told)
    assert told - before == scrape(page_ring.url, output_tokens) - received == 2 * 24 * 60
    hits = scrape(scheduler, "signalbox_scheduler_prefix_cache_hit_tokens_total")
    asked = scrape(scheduler, "signalbox_scheduler_prefix_cache_query_tokens_total")
    assert hits > 0
    assert text_of(page, "tile-prefix-hits") == f"{100 * hits / asked:.{int(hits / asked < 0.1)}f} %"
    assert number_in(text_of(page, "tile-preemptions")) == scrape(
        scheduler, "signalbox_scheduler_preemptions_total"
    )
    seen = page.execute_script("return seen")
    assert seen["running"] > 1
    assert seen["rate"] > 0
    assert seen["rows"] > 1


@pytest.mark.slow
def test_the_block_map_has_each_state_of_a_block(page: Chrome, page_ring: RunningRing) -> None:
    asyncio.run(run_load(page_ring))
    wait(lambda: text_of(page, "tile-running") == "0")
    colors = page.execute_script(
        "const canvas = document.querySelector('.worker canvas');"
        "const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "const found = new Set();"
        "for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255)"
        "  found.add(`rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})`);"
        "const named = (name) => getComputedStyle(document.querySelector(`.legend .${name}`)).backgroundColor;"
        "return Object.fromEntries(['free', 'cached', 'held'].map((name) => [name, found.has(named(name))]))"
    )
    assert colors == {"free": True, "cached": True, "held": False}
    label = page.find_element(By.CSS_SELECTOR, ".worker canvas").get_attribute("aria-label")
    assert label is not None
    assert re.match(r"KV blocks: 0 held, [\d,]+ cached, [\d,]+ free of ", label)


def test_groups_and_checkpoints_have_a_bar_each(page: Chrome, page_ring: RunningRing) -> None:
    """Of a worker that says so, and serves nothing else; the demo model has none."""

    async def look() -> tuple[list[str], list[list[str]]]:
        kind = shared_pb2.BLOCK_GROUP_KIND_WINDOW
        hello = make_hello(
            "hybrid",
            groups=[from_worker_pb2.BlockGroup(kind=kind, reach=6, num_blocks=9)],
            state_group=from_worker_pb2.StateGroup(boundary=8, num_checkpoints=1200),
            protocol=generation_pb2.ProtocolVersions(oldest=2, newest=2),
        )
        async with dial(page_ring.scheduler) as stub:
            call = stub.AttachWorker()
            await call.write(hello)
            await call.read()
            await asyncio.to_thread(wait, lambda: text_of(page, "link") == "live, 2 workers")
            lines = [line.text for line in page.find_elements(By.CSS_SELECTOR, ".worker .group")]
            bars = page.find_elements(By.CSS_SELECTOR, ".worker .shares")
            widths = [
                [str(part.get_attribute("style")) for part in bar.find_elements(By.TAG_NAME, "i")]
                for bar in bars
            ]
            call.cancel()
            return lines, widths

    assert page.find_elements(By.CSS_SELECTOR, ".worker .group") == []
    lines, widths = asyncio.run(look())
    assert lines == [
        "window of 6: 0 held, 0 cached, 9 free of 9",
        "states at each 8: 0 held, 0 cached, 1,200 free of 1,200 · made 0, used 0, evicted 0",
    ]
    assert widths == [["width: 0%;", "width: 0%;"]] * 2


@pytest.mark.slow
def test_the_board_says_that_classes_are_suspended(page: Chrome, page_ring: RunningRing) -> None:
    async def order(level: int | None) -> None:
        async with admin_client(page_ring.scheduler) as link:
            await (link.lift_safe_mode() if level is None else link.set_safe_mode(level))

    line = page.find_element(By.ID, "safe-mode")
    assert not line.is_displayed()
    asyncio.run(order(3))
    wait(line.is_displayed)
    assert line.text == (
        "Safe mode: priority numbers above 3 are suspended by an operator; 0 waiting, 0 paused."
    )
    asyncio.run(order(None))
    wait(lambda: not line.is_displayed())


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 768, 1400])
def test_nothing_is_wider_than_the_screen(page_ring: RunningRing, width: int) -> None:
    with open_browser(width, 800) as driver:
        load(driver, page_ring)
        wide, screen = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert (wide <= width, screen) == (True, width)


@pytest.mark.slow
def test_the_theme_follows_the_system_and_can_be_chosen(page_ring: RunningRing) -> None:
    with open_browser(scheme="dark") as driver:
        load(driver, page_ring)
        ground = "return getComputedStyle(document.body).backgroundColor"
        dark = driver.execute_script(ground)
        driver.find_element(By.ID, "theme").click()
        assert text_of(driver, "theme") == "light"
        assert driver.execute_script(ground) != dark
