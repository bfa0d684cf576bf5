"""The states of a run come over its wire, past Gradio; whatever becomes of it, the run is drawn."""

import pytest
from playwright.sync_api import WebSocketRoute

from tests.serving import served, wait_for
from tests.tiny import scripted_lm, token_ids

TOKENS = 80
DRAWN = """() => {
  const stage = document.querySelector('.bs-stage');
  window.drawn = [];
  const look = ({ step, value }) => window.drawn.push([value.status, step]);
  window.watcher?.disconnect();
  window.watcher = new MutationObserver(() => look(stage.batchscope));
  window.watcher.observe(stage, { attributes: true, attributeFilter: ['data-frames'] });
}"""

TWO_FRAMES = "() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))"


@pytest.fixture(scope="module")
def url():
    with served(scripted_lm([token_ids("slot by slot ")], seconds=0.03)) as url:
        yield url


def run(page, stage):
    """A run to its end -> the status and the step of each picture of it."""
    page.evaluate(DRAWN)
    stage.set_prompts(["One row", "Another row"], [TOKENS] * 2)
    stage.run()
    stage.wait_for_end()
    return page.evaluate("window.drawn")


def assert_grew_to_its_end(drawn):
    statuses, steps = zip(*drawn, strict=True)
    assert len(set(steps)) > 5
    assert list(steps) == sorted(steps)
    assert drawn[-1] == ["done", TOKENS]
    assert statuses.count("done") == 1


def test_a_run_is_drawn_from_its_wire_and_so_is_the_next(url, open_page, stage_of):
    wires = []

    def hear(wire):
        states = []
        wire.on("framereceived", lambda state: states.append(state))
        wires.append((wire, states))

    with open_page(url) as page:
        page.on("websocket", hear)
        for count in (1, 2):
            assert_grew_to_its_end(run(page, stage_of(page)))
            assert len(wires) == count
            wire, states = wires[-1]
            assert len(states) > 5
            wait_for(lambda wire=wire: page.evaluate("true") and wire.is_closed())


def test_where_no_wire_is_let_through_it_is_drawn_all_the_same(url, open_page, stage_of):
    with open_page(url) as page:
        page.route_web_socket("**/wire/*", lambda wire: wire.close())
        assert_grew_to_its_end(run(page, stage_of(page)))


def test_when_the_wire_breaks_the_rest_is_drawn_all_the_same(url, open_page, stage_of):
    def let_through(wire: WebSocketRoute):
        server = wire.connect_to_server()
        came = []

        def pass_on(message):
            came.append(message)
            wire.send(message)
            if len(came) == 3:
                server.close()
                wire.close()

        server.on_message(pass_on)

    with open_page(url) as page:
        page.route_web_socket("**/wire/*", let_through)
        drawn = run(page, stage_of(page))
        assert_grew_to_its_end(drawn)


def test_what_comes_late_over_the_wire_is_not_drawn(url, open_page, stage_of):
    """States that were held back until the run was over."""
    late = []

    def hold_back(wire: WebSocketRoute):
        wire.connect_to_server().on_message(lambda message: late.append((wire, message)))

    with open_page(url) as page:
        page.route_web_socket("**/wire/*", hold_back)
        assert run(page, stage_of(page))[-1] == ["done", TOKENS]
        assert len(late) > 5
        for wire, message in late:
            wire.send(message)
        page.evaluate(TWO_FRAMES)
        assert page.evaluate("window.drawn.at(-1)") == ["done", TOKENS]


def test_a_wire_that_is_gone_is_no_error(url, open_page):
    """As of a run that was over before the browser picked its wire up."""
    with open_page(url) as page:
        socket = "new WebSocket(new URL('wire/gone', document.baseURI))"
        ended = f"new Promise((then) => ({socket}.onclose = (end) => then(end.wasClean)))"
        assert page.evaluate(ended)
