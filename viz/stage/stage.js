// Draws a run as it grows, and as of any step once it is over. The value is the whole state so far
// (see state.py for its shape).

const RUNNING = "batchscope-running";
let cards = [];
let scheduled = 0;

function makeTile({ label, short, text, formula, rows, columns }, index) {
  const tile = Object.assign(make("button", "bs-tile"), { type: "button" });
  const figure = make("span", "bs-figure");
  figure.append(make("span", "bs-value"), make("span", "bs-unit"));
  tile.append(make("span", "bs-label", label), make("span", "bs-short", short), figure);
  tile.append(make("span", "bs-note"), make("span", "bs-brief"), make("span", "bs-bar"));
  explains(tile, () => {
    const { worked, facts } = view.value.tiles[index];
    const table = facts && factTable(columns, rows, facts);
    const sentence = presenting() && table ? "" : text; // a slide has room for one of them
    return [label, sentence, formula, ...worked.split("\n"), table].filter(Boolean);
  });
  return tile;
}

function drawTiles() {
  const holder = find("tiles");
  if (!holder.childElementCount) holder.replaceChildren(...props.tiles.map(makeTile));
  view.value.tiles.forEach((tile, index) => {
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
  holder.dataset.crowded = false;
  if (presenting()) holder.dataset.crowded = holder.scrollWidth > holder.clientWidth;
}

// "running · 14/15"
function rowWords(request) {
  const row = view.rows[request];
  return `${props.row_words[row.state]} · ${row.tokens.length}/${view.value.budgets[request]}`;
}

function makeCard(_, request) {
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
}

function drawTexts() {
  const { value, rows } = view;
  if (cards.length !== rows.length) {
    cards = rows.map(makeCard);
    find("texts").replaceChildren(...cards);
  }
  const count = rows.length > 8 ? "many" : rows.length;
  Object.assign(find("texts").dataset, { count, small: rows.length > 6, lines: rows.length > 4 ? 1 : 2 });
  const texts = cards.map((card) => card.querySelector(".bs-text"));
  const grew = texts.map((text, request) => text.textContent.length !== rows[request].text.length);
  cards.forEach((card, request) => {
    setText(card.querySelector(".bs-prompt"), value.prompts[request]);
    setText(card.querySelector(".bs-state"), rowWords(request));
    setText(texts[request], rows[request].text);
    card.dataset.running = rows[request].state === "running";
  });
  // Written first and measured then, all together: the browser lays the page out once.
  const sizes = texts.map(({ scrollHeight, clientHeight }) => ({ scrollHeight, more: scrollHeight > clientHeight + 2 }));
  texts.forEach((text, request) => {
    const { scrollHeight, more } = sizes[request];
    text.tabIndex = more ? 0 : -1; // to scroll it by keyboard
    text.dataset.more = more && view.last && over();
    if (view.last && over()) text.scrollTo(0, 0);
    else if (grew[request]) text.scrollTo(text.scrollWidth, scrollHeight); // a slide has one line
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
  const isNew = run?.value.key !== value.key;
  const wasRunning = run !== null && !isNew && !over();
  const isFirst = run === null;
  const running = value.status === "running";
  stage.dataset.status = value.status;
  keep(RUNNING, running ? "yes" : "no");
  if (isNew) {
    pause();
    closeAbout();
    hoverOver(null);
    zoom = null;
  }
  if (running) find("lost").hidden = true;
  run = readRun(value);
  show(run.steps);
  if (isNew && running) {
    setText(find("said"), `Running ${value.prompts.length} prompts.`);
    if (stage.getBoundingClientRect().top > innerHeight / 2) stage.scrollIntoView();
  } else if (!running && !isFirst && (isNew || wasRunning)) setText(find("said"), value.summary);
  stage.dataset.frames = Number(stage.dataset.frames ?? 0) + 1;
}

// Draws the run as it stood after a step.
function show(step) {
  view = viewAt(run, step);
  const { heading, summary, strip, recorded, opened } = view.value;
  find("badge").hidden = !recorded && !opened;
  setText(find("badge"), recorded ? "recorded" : "from a file");
  drawTiles();
  setText(find("heading"), heading[0]);
  setText(find("subheading"), heading[1]);
  setText(find("summary"), summary);
  setText(find("strip"), strip);
  drawPicture();
  hoverOver(hovered);
  drawTexts();
  drawTable();
  drawControls();
  drawMenus();
  tell();
}

// Some parts of a streamed value travel as JSON; see packed.py.
function unpacked(value) {
  const texts = props.packed.filter((name) => typeof value[name] === "string");
  return { ...value, ...Object.fromEntries(texts.map((name) => [name, JSON.parse(value[name])])) };
}

function schedule() {
  scheduled ||= requestAnimationFrame(() => {
    scheduled = 0;
    present(unpacked(props.value));
  });
}

find("legend").replaceChildren(
  ...Object.entries(props.legend).map(([state, words]) => {
    const item = make("li");
    const button = Object.assign(make("button"), { type: "button" });
    const [short, more] = words.split(/(?=:)/);
    const name = make("span", "", short);
    name.append(make("span", "bs-more", more));
    button.append(make("i", `bs-${state}`), name);
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
if (run.value.recorded && !still) startPlaying();
