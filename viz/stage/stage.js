// Draws a run as it grows. props.value is the whole state so far (see state.py for its shape);
// layout.js and picture.js come before this file.

const RUNNING = "batchscope-running";
const stage = find("stage");
let view = null; // what the last frame showed, for hovering and for tests
let cards = [];

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function drawTiles(tiles) {
  const holder = find("tiles");
  if (holder.childElementCount !== tiles.length) {
    holder.replaceChildren(
      ...tiles.map(({ label }) => {
        const tile = make("div", "bs-tile");
        const figure = make("div", "bs-figure");
        figure.append(make("span", "bs-value"), make("span", "bs-unit"));
        tile.append(make("div", "bs-label", label), figure, make("div", "bs-note"));
        tile.append(make("div", "bs-bar"));
        return tile;
      }),
    );
  }
  tiles.forEach((tile, index) => {
    const node = holder.children[index];
    setText(node.querySelector(".bs-value"), tile.value);
    setText(node.querySelector(".bs-unit"), tile.unit);
    setText(node.querySelector(".bs-note"), tile.note);
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
      prompt.dir = text.dir = "auto";
      const title = make("div", "bs-card-head");
      title.append(make("span", "bs-number", String(request + 1)), prompt, make("span", "bs-state"));
      card.append(title, text);
      return card;
    });
    find("texts").replaceChildren(...cards);
  }
  find("texts").dataset.count = rows.length > 8 ? "many" : rows.length;
  cards.forEach((card, request) => {
    const text = card.querySelector(".bs-text");
    const grew = text.textContent.length !== rows[request].text.length;
    setText(card.querySelector(".bs-prompt"), value.prompts[request]);
    setText(card.querySelector(".bs-state"), rowWords(request));
    setText(text, rows[request].text);
    card.dataset.running = rows[request].state === "running";
    if (grew) text.scrollTop = text.scrollHeight;
    if (value.status !== "running") text.scrollTop = 0;
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

function draw() {
  scheduled = 0;
  const value = props.value;
  stage.dataset.status = value.status;
  if (value.status === "empty") return;
  keep(RUNNING, value.status === "running" ? "yes" : "no");
  const isNew = view?.value.key !== value.key;
  if (isNew) zoom = hovered = null;
  view = readState(value);
  stage.batchscope = view;
  drawTiles(value.tiles);
  setText(find("heading"), value.heading[0]);
  setText(find("subheading"), value.heading[1]);
  setText(find("summary"), value.summary);
  drawPicture();
  hoverOver(hovered);
  drawTexts();
  drawTable();
  if (isNew && stage.getBoundingClientRect().top > innerHeight / 2) stage.scrollIntoView();
  stage.dataset.frames = Number(stage.dataset.frames ?? 0) + 1;
}

let scheduled = 0;
function schedule() {
  scheduled ||= requestAnimationFrame(draw);
}

find("legend").replaceChildren(
  ...Object.entries(props.legend).map(([state, words]) => {
    const item = make("li");
    item.append(make("i", `bs-${state}`), make("span", "", words));
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
schedule();
