// Draws a run as it grows, and as of any step once it is over. The value is the whole state so far
// (see state.py for its shape).

const RUNNING = "batchscope-running";
let run = null; // what the value says
let view = null; // the run as of the step that is shown, for hovering and for tests
let cards = [];

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function drawTiles(tiles) {
  const holder = find("tiles");
  if (holder.childElementCount !== tiles.length) {
    holder.replaceChildren(
      ...tiles.map(({ label }, index) => {
        const tile = Object.assign(make("button", "bs-tile"), { type: "button" });
        const figure = make("span", "bs-figure");
        figure.append(make("span", "bs-value"), make("span", "bs-unit"));
        tile.append(make("span", "bs-label", label), make("span", "bs-short", props.short_labels[index]));
        tile.append(figure, make("span", "bs-note"), make("span", "bs-brief"), make("span", "bs-bar"));
        explains(tile, () => [label, ...props.explain_tiles[index], view.value.tiles[index].worked].filter(Boolean));
        return tile;
      }),
    );
  }
  tiles.forEach((tile, index) => {
    const node = holder.children[index];
    for (const part of ["value", "unit", "note", "brief"]) setText(node.querySelector(`.bs-${part}`), tile[part]);
    const bar = node.querySelector(".bs-bar");
    bar.hidden = tile.bar.length === 0;
    while (bar.childElementCount < tile.bar.length) bar.append(make("i"));
    tile.bar.forEach(([state, share], part) => {
      bar.children[part].className = `bs-${state}`;
      bar.children[part].style.width = `${100 * share}%`;
    });
  });
}

// "running · 14/15"
function rowWords(request) {
  const row = view.rows[request];
  return `${props.row_words[row.state]} · ${row.tokens.length}/${view.value.budgets[request]}`;
}

function drawTexts() {
  const { value, rows } = view;
  if (cards.length !== rows.length) {
    cards = rows.map((_, request) => {
      const card = make("article", "bs-card");
      const prompt = make("span", "bs-prompt");
      const text = make("div", "bs-text");
      text.setAttribute("role", "group");
      text.setAttribute("aria-label", `Answer ${request + 1}`);
      prompt.dir = text.dir = "auto";
      const title = make("div", "bs-card-head");
      title.append(make("span", "bs-number", String(request + 1)), prompt, make("span", "bs-state"));
      card.append(title, text);
      return card;
    });
    find("texts").replaceChildren(...cards);
  }
  Object.assign(find("texts").dataset, { count: rows.length > 8 ? "many" : rows.length, two: rows.length <= 4, small: rows.length > 6 });
  cards.forEach((card, request) => {
    const text = card.querySelector(".bs-text");
    const grew = text.textContent.length !== rows[request].text.length;
    setText(card.querySelector(".bs-prompt"), value.prompts[request]);
    setText(card.querySelector(".bs-state"), rowWords(request));
    setText(text, rows[request].text);
    card.dataset.running = rows[request].state === "running";
    if (grew) text.scrollTop = text.scrollHeight;
    if (view.last && over()) text.scrollTop = 0;
    text.tabIndex = text.scrollHeight > text.clientHeight ? 0 : -1; // to scroll it by keyboard
  });
}

function drawTable() {
  const { rows, batches } = view;
  const body = element.querySelector(".bs-table tbody");
  const lines = batches.flatMap((batch) =>
    batch.requests.map((request, slot) => [
      request + 1,
      batch.index + 1,
      batch.lengths[slot],
      batch.pads[slot],
      rows[request].tokens.length,
      batch.times.length - rows[request].tokens.length,
      rowWords(request),
    ]),
  );
  while (body.rows.length > lines.length) body.deleteRow(-1);
  lines.forEach((line, index) => {
    const row = body.rows[index] ?? body.insertRow();
    line.forEach((text, cell) => setText(row.cells[cell] ?? row.insertCell(), String(text)));
  });
}

// A reload in the middle of a run (Gradio reloads when a lost connection is back) ends that run:
// say so instead of starting as if nothing had been.
function wasCutOff() {
  const [visit] = performance.getEntriesByType("navigation");
  return kept(RUNNING) === "yes" && ["reload", "back_forward"].includes(visit?.type);
}

// Shows another state: a frame of the run under way, or a run that was opened.
function present(value) {
  scheduled = 0;
  stage.dataset.status = value.status;
  if (value.status === "empty") return;
  const isNew = run?.value.key !== value.key;
  const hasEnded = !isNew && run.value.status === "running" && value.status !== "running";
  keep(RUNNING, value.status === "running" ? "yes" : "no");
  if (isNew) {
    pause();
    closeAbout();
    zoom = hovered = null;
  }
  run = readRun(value);
  show(run.steps);
  if (isNew && value.status === "running") setText(find("said"), `Running ${value.prompts.length} prompts.`);
  if (hasEnded) setText(find("said"), view.value.summary);
  if (isNew && value.status === "running" && stage.getBoundingClientRect().top > innerHeight / 2) stage.scrollIntoView();
  stage.dataset.frames = Number(stage.dataset.frames ?? 0) + 1;
}

// Draws the run as it stood after a step.
function show(step) {
  view = viewAt(run, step);
  stage.batchscope = view;
  const { heading, summary, strip, tiles } = view.value;
  find("badge").hidden = !run.value.recorded;
  drawTiles(tiles);
  setText(find("heading"), heading[0]);
  setText(find("subheading"), heading[1]);
  setText(find("summary"), summary);
  setText(find("strip"), strip);
  drawPicture();
  hoverOver(hovered);
  drawTexts();
  drawTable();
  drawControls();
  retell();
}

let scheduled = 0;
function schedule() {
  scheduled ||= requestAnimationFrame(() => present(props.value));
}

find("legend").replaceChildren(
  ...Object.entries(props.legend).map(([state, words]) => {
    const item = make("li");
    const button = Object.assign(make("button"), { type: "button" });
    const [short, more] = words.split(/(?=:)/);
    button.append(make("i", `bs-${state}`), make("span", "", short), make("span", "bs-more", more));
    explains(button, () => [words, ...props.explain_states[state], view.value.counts[state]].filter(Boolean));
    item.append(button);
    return item;
  }),
);
find("lost").hidden = !wasCutOff();
keep(RUNNING, "no");
watch("value", schedule);
new ResizeObserver(() => view && drawPicture()).observe(find("picture"));
new MutationObserver(() => view && drawPicture()).observe(document.body, {
  attributes: true,
  attributeFilter: ["class"],
});
present(props.value);
if (run?.value.recorded && !still) startPlaying();
