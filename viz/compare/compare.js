// Draws a comparison as it is measured. The value is {notice, busy, shown} (see state.py).

let scheduled = 0;

function cells(texts, tag) {
  return texts.map((text, index) => {
    const cell = make(index === 0 ? "th" : tag, "", text);
    if (cell.tagName === "TH") cell.scope = tag === "td" ? "row" : "col";
    return cell;
  });
}

function fillRows(body, title, rows) {
  const lines = rows.map((texts) => {
    const row = make("tr");
    row.append(...cells(texts, "td"));
    return row;
  });
  const heading = Object.assign(make("th", "", title), { colSpan: shown.columns.length, scope: "rowgroup" });
  const first = make("tr", "bs-compare-group");
  first.append(heading);
  body.replaceChildren(...(rows.length ? [first, ...lines] : []));
}

function drawComputedRows() {
  const how = computed ? `${props.orders[computed.order]}, ${computed.slots} slots` : "";
  fillRows(find("compare-rows-computed"), `Computed: ${how}`, computed?.rows ?? []);
}

function drawTable() {
  compare.querySelector("thead tr").replaceChildren(...cells(shown.columns, "th"));
  fillRows(find("compare-rows-measured"), "Measured", shown.rows);
  drawComputedRows();
}

// Shows another state of the comparison under way, or another comparison.
function show(next) {
  const isNew = shown?.key !== next.key;
  const isOver = next.status !== "running" && (isNew || shown.status === "running");
  const isFirst = shown === null;
  shown = next;
  if (isNew || isOver) computed = shown.computed;
  compare.dataset.status = shown.status;
  compare.batchscope = shown;
  setText(find("compare-heading"), shown.heading);
  setText(find("compare-remark"), shown.remark);
  setText(find("compare-strip"), shown.strip);
  find("compare-picture").hidden = find("compare-table").hidden = false;
  find("compare-key-computed").hidden = !computed;
  find("compare-badge").hidden = !shown.recorded && !shown.opened;
  setText(find("compare-badge"), shown.recorded ? "recorded" : "from a file");
  drawSettings();
  drawTable();
  drawLanes();
  drawFiles();
  if (isNew || isOver) startArrivals();
  if (isNew && shown.status === "running") {
    setText(find("compare-said"), "Comparing.");
    if (find("compare-shown").getBoundingClientRect().top > innerHeight / 2) find("compare-shown").scrollIntoView();
  }
  if (isOver && !isFirst) setText(find("compare-said"), `${shown.heading}. ${shown.remark}`);
}

function present(value) {
  drawForm(value);
  if (value.shown) show(value.shown);
}

function setPresenting(on) {
  compare.classList.toggle("bs-compare-presenting", on);
  find("compare-present").setAttribute("aria-pressed", String(on));
  setText(find("compare-present"), on ? "Leave (Esc)" : "Present");
  drawLanes();
  (on ? find("compare-shown") : find("compare-present")).focus({ preventScroll: true }); // the buttons hide without it
}

find("compare-present").addEventListener("click", () => setPresenting(!presenting()));
onDocument("keydown", (event) => {
  if (!compare.checkVisibility() || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, textarea, select")) return;
  if (event.key.toLowerCase() === "p") setPresenting(!presenting());
  else if (event.key === "Escape" && presenting()) setPresenting(false);
});
watch("value", () => {
  scheduled ||= requestAnimationFrame(() => {
    scheduled = 0;
    present(props.value);
  });
});
// The lanes set their own height.
new ResizeObserver(() => {
  if (plot.clientWidth !== drawn?.width || presenting()) drawLanes();
}).observe(find("compare-lanes"));
new MutationObserver(() => {
  drawLanes();
  drawPlan();
  drawArrivals();
}).observe(document.body, { attributes: true, attributeFilter: ["class"] });
present(props.value);
