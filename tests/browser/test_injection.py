"""Hostile texts in a real browser: on the page they are text, and in the files that leave it."""

import base64
import json
import re
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from engine import runfile
from engine.errors import RequestError, first_line
from engine.orders import stop_text
from engine.promptfile import read_prompts
from engine.requests import MAX_STOP_CHARACTERS, MAX_STOPS, Limits
from tests.browser.conftest import ROWS, Stage
from tests.injection import CORPUS, TEXTS, byte_ids, emitted, is_unicode, saved_run
from tests.serving import served
from tests.tiny import EOS, scripted_lm
from viz.export import export_text
from viz.words import caption

OWN_PATHS = ("/", "/config", "/theme.css", "/manifest.json", "/favicon.ico")
OWN_FOLDERS = ("/assets/", "/static/", "/gradio_api/")
TEXT_ONLY = (
    ".bs-prompt, .bs-text, .bs-state, .bs-summary, .bs-strip, .bs-heading, .bs-subheading, "
    ".bs-said, .bs-notice, .bs-editor-said, .bs-hover > div, .bs-about-lines > p, .bs-table td, "
    ".bs-rows textarea"
)
"""What shows a text, and has no other element in it."""
OF_POLICY = ("Content Security Policy", "unsafe-eval", "Refused to")

each_kind = pytest.mark.parametrize("kind", CORPUS)


class Watch:
    """A page, and all that a text may have set off on it."""

    def __init__(self, page, is_own):
        self.page = page
        self.heard = []
        page.set_default_timeout(30_000)
        page.on("dialog", lambda dialog: (self.heard.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        page.on("popup", lambda popup: self.heard.append(popup.url))
        page.on("framenavigated", lambda frame: self._hear_url(frame.url, is_own))
        page.on("request", lambda request: self._hear_url(request.url, is_own))
        page.on("console", self._hear)

    def _hear_url(self, url, is_own):
        if not url.startswith(("data:", "blob:", "about:")) and not is_own(url):
            self.heard.append(url)

    def _hear(self, message):
        if message.type == "error" or any(part in message.text for part in OF_POLICY):
            self.heard.append(message.text)

    def expect_nothing(self):
        """No dialog, no other page, no request for anything else, no word on the console, no
        script that ran, and no element inside a text."""
        assert self.heard == []
        assert self.page.evaluate("[typeof window.canary, typeof {}.canary]") == ["undefined"] * 2
        assert [frame.url for frame in self.page.frames[1:]] == []
        assert self.inside_of_texts() == []

    def inside_of_texts(self):
        return self.page.locator(TEXT_ONLY).evaluate_all(
            "nodes => nodes.filter((node) => node.childElementCount).map((node) => node.outerHTML)"
        )

    def elements(self):
        """The names of the elements outside and inside of the picture, and of all attributes that
        handle events."""
        return self.page.evaluate(
            """() => {
              const names = (nodes) => [...new Set(nodes.map((node) => node.localName))];
              const all = [...document.querySelectorAll("*")];
              const drawn = all.filter((node) => node.closest(".bs-plot *"));
              const attributes = all.flatMap((node) => node.getAttributeNames());
              return {
                page: names(all.filter((node) => !drawn.includes(node))),
                picture: names(drawn),
                handlers: [...new Set(attributes)].filter((name) => name.startsWith("on")),
                scripts: document.scripts.length,
                sheets: document.styleSheets.length,
              };
            }"""
        )

    def texts(self, selector):
        """What stands in the elements of a class, as it is."""
        return self.page.locator(selector).evaluate_all(
            "nodes => nodes.map((node) => node.value ?? node.textContent)"
        )

    def wait_for_texts(self, selector, texts):
        self.page.wait_for_function(
            """([selector, texts]) => {
              const nodes = [...document.querySelectorAll(selector)];
              return nodes.length === texts.length
                && nodes.every((node, i) => (node.value ?? node.textContent) === texts[i]);
            }""",
            arg=[selector, texts],
        )


@pytest.fixture(scope="module")
def lm():
    return scripted_lm([[65, EOS]])


@pytest.fixture(scope="module")
def watch(chromium, lm):
    """The page, opened once for all kinds, with all its fields in sight."""
    with served(lm, limits=Limits(prompts=64)) as url:
        origin = urlsplit(url).netloc

        def is_own(address):
            parts = urlsplit(address)
            known = parts.path in OWN_PATHS or parts.path.startswith(OWN_FOLDERS)
            return parts.netloc == origin and known

        context = chromium.new_context(
            viewport={"width": 1440, "height": 1000}, reduced_motion="reduce"
        )
        watch = Watch(context.new_page(), is_own)
        watch.page.goto(f"{url}/?__theme=light")
        watch.page.wait_for_selector(".bs-rows")
        watch.page.wait_for_function("window.Plotly !== undefined")
        watch.page.get_by_text("Sampling, stops, padding side").click()
        yield watch
        context.close()


@pytest.fixture(scope="module")
def usual(watch, lm):
    """The elements of the page after all that these tests do, with plain texts."""
    plain = ["a plain text", "another one", "and a third"]
    run_as_prompts_and_answers(watch, lm, plain)
    open_saved(watch, plain)
    hover_over_tokens(watch, plain)
    point_at_token(watch, plain[0], len(plain))
    return watch.elements()


def expect_usual(watch, usual):
    watch.expect_nothing()
    found = watch.elements()
    assert set(found["page"]) <= set(usual["page"])
    assert set(found["picture"]) <= set(usual["picture"])
    assert set(found["handlers"]) <= set(usual["handlers"])
    assert (found["scripts"], found["sheets"]) == (usual["scripts"], usual["sheets"])


def filed(kind):
    return [text for text in CORPUS[kind].values() if is_unicode(text)]


def typed(text):
    """A text as a field holds it: the browser has one kind of line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def follow(watch, **order):
    """Open a link in the page that is there."""
    text = base64.urlsafe_b64encode(json.dumps(order).encode()).decode().rstrip("=")
    watch.page.evaluate("link => { location.hash = link }", f"#run={text}")


def run_as_prompts_and_answers(watch, lm, texts):
    """Open a link with the texts as prompts, and run it on a model that answers with them."""
    lm.model.before_forward = None
    lm.model.script = [[*byte_ids(text), EOS] for text in texts]
    prompts = [text if is_unicode(text) else "half of a pair" for text in texts]
    follow(watch, prompts=prompts, max_new_tokens=512, chat_template=False)
    watch.wait_for_texts(".bs-rows textarea", list(map(typed, prompts)))
    size = watch.page.get_by_label("Batch size (slots)")
    expect(size).to_have_value(str(len(texts)))
    stage = Stage(watch.page)
    stage.run()
    stage.wait_for_end()
    assert watch.texts(".bs-prompt") == list(map(typed, prompts))
    assert watch.texts(".bs-text") == list(map(emitted, texts))
    return stage


def open_saved(watch, texts):
    """Open a file whose record has the texts in every place."""
    run = saved_run(texts)
    stage = Stage(watch.page)
    stage.expect_another()
    watch.page.locator(".bs-file").set_input_files(
        {
            "name": "run.json",
            "mimeType": "application/json",
            "buffer": runfile.dumps(run).encode(),
        }
    )
    stage.wait_for_end("error")
    assert watch.texts(".bs-prompt") == texts
    assert watch.texts(".bs-text") == list(run.texts)
    assert watch.texts(".bs-strip")[0].startswith(caption(run.model))
    assert watch.texts(".bs-summary")[0].startswith(run.error.lstrip())
    return stage


def token_line(text):
    """What is told of a token with this text."""
    quoted = json.dumps(text, ensure_ascii=False)
    turning = r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
    quoted = re.sub(turning, lambda found: f"\\u{ord(found[0]):04x}", quoted)
    return f"token {quoted} (id 65)"


def hover_over_tokens(watch, texts):
    """Go through the tokens of the first step by keyboard, and pin the last."""
    page = watch.page
    page.locator(".bs-cursor").fill("1")
    told = page.evaluate(
        """rows => {
          const picture = document.querySelector(".bs-picture");
          const options = { bubbles: true, cancelable: true };
          const press = (key) =>
            picture.dispatchEvent(new KeyboardEvent("keydown", { key, ...options }));
          const hover = document.querySelector(".bs-hover");
          picture.focus();
          const told = [];
          for (let row = 0; row < rows; row += 1) {
            press("ArrowDown");
            told.push(hover.children[2].textContent);
          }
          press("Enter");
          const pinned = document.querySelector(".bs-about-lines").children[1].textContent;
          return [...told, pinned];
        }""",
        len(texts),
    )
    assert told[:-1] == list(map(token_line, texts))
    assert told[-1] == token_line(texts[-1])
    watch.expect_nothing()
    page.keyboard.press("Escape")


def point_at_token(watch, text, rows):
    """Point at the first row's token of the first step."""
    page = watch.page
    columns, start = Stage(page).evaluate("[plot.data[0].z[0].length, view.places[0].start]")
    box = page.locator(ROWS).bounding_box()
    page.mouse.move(
        box["x"] + box["width"] * (start + 0.5) / columns,
        box["y"] + box["height"] * 0.5 / rows,
    )
    page.locator(".bs-hover").get_by_text("Request 1, slot 1").wait_for()
    assert watch.texts(".bs-hover > div")[2] == token_line(text)


@each_kind
def test_b7_b8_as_prompts_and_answers(watch, usual, lm, kind):
    texts = list(CORPUS[kind].values())
    stage = run_as_prompts_and_answers(watch, lm, texts)
    expect_usual(watch, usual)
    watch.page.locator(".bs-cursor").fill(str(stage.evaluate("view.steps") // 2))
    expect_usual(watch, usual)


@each_kind
def test_b8_in_every_place_of_a_saved_run(watch, usual, kind):
    texts = filed(kind)
    stage = open_saved(watch, texts)
    expect_usual(watch, usual)
    hover_over_tokens(watch, texts)
    point_at_token(watch, texts[0], len(texts))
    expect_usual(watch, usual)
    watch.page.get_by_role("button", name="Present", exact=True).click()
    assert stage.evaluate("document.querySelector('.bs-presenting') !== null")
    expect_usual(watch, usual)
    watch.page.keyboard.press("Escape")
    watch.page.locator(".bs-cursor").fill("3")
    assert watch.texts(".bs-text") == [text + "AA" for text in texts]
    drawn = watch.page.locator(".bs-plot").evaluate("node => node.textContent")
    assert [text for text in texts if len(text) > 9 and text in drawn] == []


@each_kind
def test_b8_as_what_is_wrong(watch, usual, lm, kind):
    """A seed, models and stop strings of a link, and a model that raises."""
    seed = re.sub(r"[\r\n]", "", filed(kind)[0]).strip()  # a field of one line
    watch.page.get_by_label("Seed").fill(seed)
    watch.page.get_by_label("Seed").press("Tab")
    watch.page.get_by_role("button", name="Run", exact=True).click()
    said = f"The seed must be a whole number, not {repr(seed)[:40]}."
    watch.page.get_by_role("alert").get_by_text(said, exact=True).first.wait_for()
    expect_usual(watch, usual)

    texts = [text[:MAX_STOP_CHARACTERS] for text in filed(kind)][:MAX_STOPS]
    for number, text in enumerate(filed(kind)):
        order = {"max_new_tokens": 5, "chat_template": False, "model": text, "seed": number}
        follow(watch, prompts=["x"], **order)
        said = f"The link names the model {text!r:.60}, which is not offered here: "
        watch.wait_for_texts(".bs-editor-said", [f"{said}{lm.name} is chosen."])
        # Settings come after the prompts, and those of two links could overtake each other.
        expect(watch.page.get_by_label("Seed")).to_have_value(str(number))
    follow(watch, prompts=["y"], max_new_tokens=5, chat_template=False, stop=texts)
    watch.wait_for_texts("#bs-stops textarea", [typed(stop_text(texts))])
    expect_usual(watch, usual)

    error = RuntimeError(" ".join(text.replace("\n", " ").replace("\r", " ") for text in texts))

    def fail(column):
        if column == 2:
            raise error

    lm.model.before_forward = fail
    follow(watch, prompts=["z"], max_new_tokens=5, chat_template=False)
    watch.wait_for_texts(".bs-rows textarea", ["z"])
    watch.wait_for_texts("#bs-stops textarea", [""])
    stage = Stage(watch.page)
    stage.run()
    stage.wait_for_end("error")
    assert first_line(error) in watch.texts(".bs-summary")[0]
    expect_usual(watch, usual)


@each_kind
def test_b8_as_names_of_files(watch, usual, kind):
    texts = filed(kind)
    told = watch.page.evaluate(
        """names => names.map((name) => {
          const event = Object.assign(new Event("drop", { cancelable: true }), {
            dataTransfer: { types: ["Files"], files: [{ name, size: 2 ** 40 }] },
          });
          document.dispatchEvent(event);
          return document.querySelector(".bs-said").textContent;
        })""",
        texts,
    )
    assert told == [f"{text} is larger than 16 MiB." for text in texts]
    for text in texts:
        drop_on_editor(watch, text, "x")
        watch.wait_for_texts(".bs-editor-said", [refusal(b"x", text)])
    expect_usual(watch, usual)


@each_kind
def test_b8_out_of_a_file_of_prompts(watch, usual, kind):
    texts = [text for text in filed(kind) if "\0" not in text]
    drop_on_editor(watch, "prompts.jsonl", "".join(json.dumps(text) + "\n" for text in texts))
    watch.wait_for_texts(".bs-rows textarea", list(map(typed, texts)))
    for text in texts:
        line = json.dumps({text: "x"})
        drop_on_editor(watch, "prompts.jsonl", line)
        watch.wait_for_texts(".bs-editor-said", [refusal(line.encode(), "prompts.jsonl")])
    expect_usual(watch, usual)


def drop_on_editor(watch, name, content):
    watch.page.evaluate(
        """([name, content]) => {
          const event = Object.assign(new Event("drop", { cancelable: true }), {
            dataTransfer: { types: ["Files"], files: [new File([content], name)] },
          });
          document.querySelector(".bs-editor").dispatchEvent(event);
        }""",
        [name, content],
    )


def refusal(content, name):
    with pytest.raises(RequestError) as error:
        read_prompts(content, name)
    return str(error.value)


def test_files_of_hostile_runs_have_names_of_their_own(watch, tmp_path):
    for text in filed("paths"):
        stage = open_saved(watch, [text])
        name = stage.save(tmp_path).name
        assert name.startswith("batchscope-")
        assert name.endswith(".json")
        watch.page.wait_for_function(
            "said => document.querySelector('.bs-said').textContent === said",
            arg=f"{name} was saved.",
        )
    watch.expect_nothing()


@contextmanager
def opened_offline(chromium, path):
    """A file in a browser without network."""
    context = chromium.new_context(offline=True)
    watch = Watch(context.new_page(), lambda address: address == path.as_uri())
    watch.page.goto(path.as_uri())
    try:
        yield watch
    finally:
        context.close()


def test_b8_a_replay_to_take_away_does_nothing_else(chromium, tmp_path):
    texts = [text for text in TEXTS if is_unicode(text)]
    path = tmp_path / "run.html"
    path.write_bytes(export_text(saved_run(texts), "html").encode())
    with opened_offline(chromium, path) as watch:
        watch.page.wait_for_selector(".bs-plot .heatmaplayer")
        assert watch.texts(".bs-prompt") == texts
        assert watch.texts(".bs-text") == [text + "AA" for text in texts]
        hover_over_tokens(watch, texts)
        watch.expect_nothing()
        assert watch.page.locator("script").count() == 3
        assert watch.page.locator("a, b, iframe, img, object, embed, form, base").count() == 0


@each_kind
def test_b8_a_picture_to_take_away_does_nothing(chromium, tmp_path, kind):
    texts = filed(kind)
    path = tmp_path / "run.svg"
    shown = [texts[at : at + 4] for at in range(0, len(texts), 4)]
    with opened_offline(chromium, written(path, shown[0])) as watch:
        for four in shown:
            watch.page.goto(written(path, four).as_uri())
            names = watch.page.locator("*").evaluate_all(
                "nodes => [...new Set(nodes.map((node) => node.localName))]"
            )
            assert set(names) <= {"svg", "title", "desc", "g", "rect", "path", "text"}
            watch.expect_nothing()


def written(path, texts):
    path.write_bytes(export_text(saved_run(texts), "svg").encode())
    return path
