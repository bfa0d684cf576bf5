// Draws a sweep as it is measured. The value is {notice, busy, shown} (see state.py).

let scheduled = 0;

function drawTable({ columns, rows }) {
  const cells = (tags, texts) =>
    texts.map((text, index) => {
      const cell = make(tags[index === 0 ? 0 : 1], "", text);
      if (cell.tagName === "TH") cell.scope = tags[1] === "td" ? "row" : "col";
      return cell;
    });
  const line = (texts) => {
    const row = make("tr");
    row.append(...cells(["th", "td"], texts));
    return row;
  };
  sweep.querySelector("thead tr").replaceChildren(...cells(["th", "th"], columns));
  sweep.querySelector("tbody").replaceChildren(...rows.map(line));
}

// What is for a slide too, and what is not.
function setParts(line, parts) {
  [...line.children].forEach((part, index) => setText(part, parts[index] ?? ""));
}

// Shows another state of the sweep under way, or another sweep.
function show(next) {
  const isNew = shown?.key !== next.key;
  const isOver = next.status !== "running" && (isNew || shown.status === "running");
  const isFirst = shown === null;
  shown = next;
  sweep.dataset.status = shown.status;
  sweep.batchscope = shown;
  setText(find("sweep-heading"), shown.heading);
  setText(find("sweep-remark"), shown.remark);
  setParts(find("sweep-note"), shown.note);
  setParts(find("sweep-strip"), shown.strip);
  find("sweep-charts").hidden = find("sweep-table").hidden = false;
  find("sweep-badge").hidden = !shown.recorded && !shown.opened;
  setText(find("sweep-badge"), shown.recorded ? "recorded" : "from a file");
  find("sweep-published-key").hidden = shown.published.length === 0;
  find("sweep-save").disabled = shown.record === "";
  drawTable(shown);
  drawCharts();
  if (isNew && shown.status === "running") {
    setText(find("sweep-said"), "Measuring.");
    if (find("sweep-shown").getBoundingClientRect().top > innerHeight / 2) find("sweep-shown").scrollIntoView();
  }
  if (isOver && !isFirst) setText(find("sweep-said"), `${shown.heading}. ${shown.remark}`);
}

function present(value) {
  drawForm(value);
  if (value.shown) show(value.shown);
}

function setPresenting(on) {
  sweep.classList.toggle("bs-sweep-presenting", on);
  find("sweep-present").setAttribute("aria-pressed", String(on));
  setText(find("sweep-present"), on ? "Leave (Esc)" : "Present");
  drawCharts();
  (on ? find("sweep-shown") : find("sweep-present")).focus({ preventScroll: true }); // the buttons hide without it
}

find("sweep-present").addEventListener("click", () => setPresenting(!presenting()));
onDocument("keydown", (event) => {
  if (!sweep.checkVisibility() || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, textarea, select")) return;
  if (event.key.toLowerCase() === "p") setPresenting(!presenting());
  else if (event.key === "Escape" && presenting()) setPresenting(false);
});
find("sweep-reference").addEventListener("change", drawCharts);
watch("value", () => {
  scheduled ||= requestAnimationFrame(() => {
    scheduled = 0;
    present(props.value);
  });
});
new ResizeObserver(drawCharts).observe(find("sweep-charts"));
new MutationObserver(drawCharts).observe(document.body, { attributes: true, attributeFilter: ["class"] });
present(props.value);
