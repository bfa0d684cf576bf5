// Draws a run as it grows, and as of any step once it is over. The value is the whole state so far
// (see state.py for its shape).

const RUNNING = "batchscope-running";
const PLAN_MS = 80; // that a plan waits for the first tokens
const TABLE_MS = 1000; // from one table for screen readers to the next
let tiles = [];
let cards = [];
let tableOf = null;
let tableAt = 0;
let newest = null; // state of a run that has come, which may not be drawn yet
const parsed = {}; // what was last read of the texts in which parts travel

function makeTile({ label, short, text, formula, rows, columns }, index) {
  const tile = Object.assign(make("button", "bs-tile"), { type: "button" });
  const figure = make("span", "bs-figure");
  const parts = Object.fromEntries(["value", "unit", "note", "brief", "bar"].map((name) => [name, make("span", `bs-${name}`)]));
  figure.append(parts.value, parts.unit);
  tile.append(make("span", "bs-label", label), make("span", "bs-short", short), figure);
  tile.append(parts.note, parts.brief, parts.bar);
  explains(tile, () => {
    const { worked, facts } = view.value.tiles[index];
    const table = facts && factTable(columns, rows, facts);
    const sentence = presenting() && table ? "" : text; // a slide has room for one of them
    return [label, sentence, formula, ...worked.split("\n"), table].filter(Boolean);
  });
  return { tile, parts };
}

function drawTiles() {
  const holder = find("tiles");
  if (!tiles.length) {
    tiles = fixed.tiles.map(makeTile);
    holder.replaceChildren(...tiles.map(({ tile }) => tile));
  }
  view.value.tiles.forEach((tile, index) => {
    const { bar, ...texts } = tiles[index].parts;
    for (const [part, node] of Object.entries(texts)) setText(node, tile[part]);
    if (bar.hidden !== (tile.bar.length === 0)) bar.hidden = !bar.hidden;
    while (bar.childElementCount < tile.bar.length) bar.append(make("i"));
    tile.bar.forEach(([state, share], part) => {
      setAttribute(bar.children[part], "class", `bs-${state}`);
      bar.children[part].style.width = `${100 * share}%`;
    });
  });
  setAttribute(holder, "data-crowded", "false");
  if (presenting()) setAttribute(holder, "data-crowded", holder.scrollWidth > holder.clientWidth);
}

// "running · 14/15"
function rowWords(request) {
  const row = view.rows[request];
  return `${fixed.row_words[row.state]} · ${row.tokens.length}/${view.value.budgets[request]}`;
}

// What else is known of a row, once it is known: what it waited, and that its client has left.
function marksOf(request) {
  const mark = view.value.marks?.[request];
  if (!mark) return [];
  const gone = mark.left !== null && (view.last || 1000 * mark.left <= finishedAt()[view.step]);
  return [mark.waited, gone ? mark.gone : ""];
}

function drawMarks(node, request) {
  const marks = marksOf(request);
  [...node.children].forEach((child, i) => setText(child, marks[i] ?? ""));
  setAttribute(node, "data-gone", Boolean(marks[1]));
}

function makeCard(_, request) {
  const card = make("article", "bs-card");
  const prompt = make("span", "bs-prompt");
  const state = make("span", "bs-state");
  const marks = make("div", "bs-marks");
  marks.append(make("span"), make("span", "bs-gone"));
  const text = make("div", "bs-text");
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", `Answer ${request + 1}`);
  prompt.dir = text.dir = "auto";
  const title = make("div", "bs-card-head");
  title.append(make("span", "bs-number", String(request + 1)), prompt, state);
  card.append(title, text);
  if (fixed.watching) {
    card.classList.add("bs-marked");
    text.before(marks);
  }
  return { card, prompt, state, marks, text, said: "", measured: "" };
}

// What is there stays where a text only grew: a browser shapes and breaks what is appended alone.
function writeText(card, text) {
  const { said } = card;
  if (said === text) return;
  card.said = text;
  if (said && text.startsWith(said)) card.text.firstChild.appendData(text.slice(said.length));
  else card.text.textContent = text;
}

function drawTexts() {
  const { value, rows } = view;
  if (cards.length !== rows.length) {
    cards = rows.map(makeCard);
    find("texts").replaceChildren(...cards.map(({ card }) => card));
  }
  const data = { count: rows.length > 8 ? "many" : rows.length, small: rows.length > 6, lines: rows.length > 4 ? 1 : 2 };
  if (fixed.watching) data.hidden = value.hidden;
  for (const [name, datum] of Object.entries(data)) setAttribute(find("texts"), `data-${name}`, datum);
  cards.forEach((card, request) => {
    setText(card.prompt, value.prompts[request]);
    if (fixed.watching) drawMarks(card.marks, request);
    setText(card.state, rowWords(request));
    setAttribute(card.card, "data-running", rows[request].state === "running");
    writeText(card, rows[request].text);
  });
  // Written first and measured then, all together: the browser lays the page out once.
  const ended = view.last && over();
  const changed = cards.filter(({ said, measured }) => over() || said !== measured);
  const sizes = changed.map(({ text }) => [text.scrollHeight, text.clientHeight]);
  changed.forEach((card, i) => {
    const { text, said, measured } = card;
    const [scrollHeight, clientHeight] = sizes[i];
    const more = scrollHeight > clientHeight + 2;
    card.measured = said;
    setAttribute(text, "tabindex", more ? 0 : -1); // to scroll it by keyboard
    setAttribute(text, "data-more", more && ended);
    if (ended) text.scrollTo(0, 0);
    else if (said !== measured && (more || presenting())) text.scrollTo(text.scrollWidth, scrollHeight); // a slide has one line
  });
}

// Nobody reads a table ten times a second, and it costs as much as the picture.
function drawTable() {
  const now = performance.now();
  if (!over() && tableOf === run.value.key && now - tableAt < TABLE_MS) return;
  [tableOf, tableAt] = [run.value.key, now];
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
      [rowWords(request), ...marksOf(request)].filter(Boolean).join(", "),
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
  if (stage.dataset.status !== value.status) {
    stage.dataset.status = value.status;
    if (!fixed.watching) keep(RUNNING, running ? "yes" : "no");
  }
  if (isNew) {
    pause();
    closeAbout();
    hoverOver(null);
    zoom = null;
  }
  if (running) find("lost").hidden = true;
  run = readRun(value, wasRunning ? run : undefined);
  show(run.steps, { grows: wasRunning && running });
  stage.dataset.frames = Number(stage.dataset.frames ?? 0) + 1;
  if (fixed.watching) return; // nobody asked for it, so nothing is said or moved
  if (isNew && running) {
    setText(find("said"), `Running ${value.prompts.length} prompts.`);
    if (stage.getBoundingClientRect().top > innerHeight / 2) stage.scrollIntoView();
  } else if (!running && !isFirst && (isNew || wasRunning)) setText(find("said"), value.summary);
}

// Draws the run as it stood after a step; what `grows` has been drawn as far as it went before.
function show(step, { grows = false } = {}) {
  view = viewAt(run, step);
  const { heading, summary, strip, recorded, opened } = view.value;
  find("badge").hidden = !recorded && !opened;
  setText(find("badge"), recorded ? "recorded" : "from a file");
  drawTiles();
  setText(find("heading"), heading[0]);
  setText(find("subheading"), heading[1]);
  setText(find("summary"), summary);
  setText(find("strip"), strip);
  if (!(grows && growPicture())) drawPicture();
  hoverOver(hovered);
  drawTexts();
  drawTable();
  drawControls();
  drawMenus();
  tell();
}

// Most parts of a streamed value travel in texts; see packed.py.
function unpacked(value) {
  const read = (name) => {
    if (parsed[name]?.text !== value[name]) parsed[name] = { text: value[name], parts: JSON.parse(value[name]) };
    return parsed[name].parts;
  };
  return Object.assign({}, value, ...fixed.packed.filter((name) => name in value).map(read));
}

const lengthOf = ({ times }) => times.join("").length;

// Whether a newer state of the same run is here: those of Gradio and those of the wire overtake each other.
function isLate(value) {
  if (newest?.key !== value.key) return false;
  return newest.status !== "running" || (value.status === "running" && lengthOf(value) < lengthOf(newest));
}

// The first tokens and the end are waited for. A plan is drawn if these don't follow at once: a new
// picture takes so long that the first steps would be shown late.
function receive(value) {
  if (isLate(value)) return;
  newest = value;
  const running = value.status === "running";
  if (!running) hangUp();
  else if (value.wire) follow(value.wire, receive, drawNewest);
  const hasTokens = lengthOf(value) > 0;
  const isFirst = run.value.key !== value.key || view.step === 0;
  draws(() => present(newest), { now: !running || (isFirst && hasTokens), wait: running && !hasTokens ? PLAN_MS : 0 });
}

// The wire ends as soon as the run does, whose record takes longer to come.
function drawNewest() {
  if (newest !== run.value && lengthOf(newest) > 0) draws(() => present(newest), { now: true });
}

find("legend").replaceChildren(
  ...Object.entries(fixed.legend).map(([state, words]) => {
    const item = make("li");
    const button = Object.assign(make("button"), { type: "button" });
    const [short, more] = words.split(/(?=:)/);
    const name = make("span", "", short);
    name.append(make("span", "bs-more", more));
    button.append(make("i", `bs-${state}`), name);
    explains(button, () => [words, ...fixed.explain_states[state], view.value.counts[state]].filter(Boolean));
    item.append(button);
    return item;
  }),
);
if (fixed.watching) {
  const gone = make("li", "bs-marked");
  gone.append(make("i", "bs-active bs-gone"), make("span", "", "client gone"));
  find("legend").append(gone);
} else {
  find("lost").hidden = !wasCutOff();
  keep(RUNNING, "no");
}
watch("value", () => receive(unpacked(props.value)));
new ResizeObserver(() => view && drawPicture()).observe(find("picture"));
new MutationObserver(() => view && drawPicture()).observe(document.body, {
  attributes: true,
  attributeFilter: ["class"],
});
if (!fixed.watching) present(props.value);
if (run?.value.recorded && !still) startPlaying();
