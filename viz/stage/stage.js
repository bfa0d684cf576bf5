// Draws a run as it grows. props.value is the whole state so far (see state.py for its shape).

const stage = find("stage");
const plot = find("plot");
const hover = find("hover");
const CODES = { planned: 0, active: 1, padded: 2, idle: 3 };
const STATES = Object.keys(CODES);
const ROW_PIXELS = 50;
const PICTURE_PIXELS = 236;
const AXIS_PIXELS = 30;
const RUNNING = "batchscope-running";

let view = null; // what the last frame showed, for hovering and for tests
let zoom = null; // the columns that the reader zoomed to, or null for all
let hovered = null; // the cell under a resting pointer: what it says changes as the run goes on
let cards = [];

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// "12 foo\n34 bar\n" -> tokens; what follows the last newline was released without a token.
function readLog(log) {
  const unescape = (text) => text.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
  const lines = log.split("\n");
  const tail = unescape(lines.pop());
  const tokens = lines.map((line) => {
    const cut = line.indexOf(" ");
    return { id: line.slice(0, cut), text: unescape(line.slice(cut + 1)) };
  });
  return { tokens, text: tokens.map((token) => token.text).join("") + tail };
}

// Places every batch on one axis of columns: prompt, gap, new tokens, wider gap, next batch.
function readState(value) {
  const rows = value.logs.map(readLog);
  const batches = value.batches.map((batch, index) => {
    const times = value.times[index].split(" ").slice(0, -1).map(Number);
    const over = value.status !== "running" || batch.requests.every((r) => value.ends[r]);
    const budget = Math.max(...batch.requests.map((r) => value.budgets[r]));
    const width = over ? times.length : budget;
    return { ...batch, index, times, width, promptWidth: Math.max(...batch.lengths) };
  });
  const shown = value.status === "running" ? batches : batches.filter((b) => b.times.length);
  const columns = shown.reduce((sum, b) => sum + b.promptWidth + b.width, 0);
  const gap = Math.max(1, Math.round(columns * 0.012));
  let x = 0;
  for (const batch of shown) {
    batch.promptStart = x;
    batch.start = x + batch.promptWidth + gap;
    batch.end = batch.start + batch.width;
    x = batch.end + 2 * gap;
  }
  for (const batch of batches) {
    const unended = value.status === "running" && !batch.times.length ? "waiting" : "running";
    for (const request of batch.requests) rows[request].state = value.ends[request] ?? unended;
  }
  const slots = Math.max(...batches.map((b) => b.requests.length));
  return { value, rows, batches: shown, slots, gap, columns: Math.max(1, x - 2 * gap) };
}

// The picture: z[slot][column] is a state's code, null where there is no slot.
function cells({ value, rows, batches, slots, columns }) {
  const z = Array.from({ length: slots }, () => new Array(columns).fill(null));
  for (const batch of batches) {
    batch.requests.forEach((request, slot) => {
      const row = z[slot];
      const real = batch.lengths[slot];
      const pads = batch.promptWidth - real;
      const firstReal = value.side === "left" ? pads : 0;
      for (let k = 0; k < batch.promptWidth; k++) {
        const isReal = k >= firstReal && k < firstReal + real;
        const state = isReal ? "active" : "padded";
        row[batch.promptStart + k] = CODES[batch.times.length ? state : "planned"];
      }
      for (let k = 0; k < batch.width; k++) {
        const state =
          k >= batch.times.length ? "planned" : k < rows[request].tokens.length ? "active" : "idle";
        row[batch.start + k] = CODES[state];
      }
    });
  }
  return z;
}

function colour(name) {
  return getComputedStyle(stage).getPropertyValue(`--bs-${name}`).trim();
}

function colourScale() {
  const share = 1 / STATES.length;
  return STATES.flatMap((state, code) => [
    [code * share, colour(state)],
    [(code + 1) * share, colour(state)],
  ]);
}

// Captions under the columns, as long as their place allows.
function captions({ batches, columns }, pixels) {
  const width = (count) => (count / columns) * pixels;
  const note = (x, text, anchor) => ({
    x,
    y: 0,
    yref: "paper",
    yanchor: "top",
    yshift: -6,
    xanchor: anchor,
    text,
    showarrow: false,
    font: { size: 13, color: colour("muted") },
  });
  return batches.flatMap((batch) => {
    const many = batches.length > 1;
    const prompt = width(batch.promptWidth);
    const fresh = width(batch.width);
    const first = batch.promptStart - 0.5;
    const name = `batch ${batch.index + 1}`;
    const [one, last] = [batch.requests[0] + 1, batch.requests.at(-1) + 1];
    const members = one === last ? `request ${one}` : `requests ${one}–${last}`;
    const notes = [];
    if (many && prompt > 170) notes.push(note(first, `${name}: ${members}`, "left"));
    else if (many && prompt > 60) notes.push(note(first, name, "left"));
    else if (prompt > 300) notes.push(note(first, "prompt tokens, all in one prefill forward", "left"));
    else if (prompt > 130) notes.push(note(first, "prompt tokens", "left"));
    if (prompt > 170) notes.push(note(batch.promptStart + batch.promptWidth - 0.5, String(batch.promptWidth), "right"));
    if (fresh > 230) notes.push(note(batch.start - 0.5, "new tokens, one forward each", "left"));
    else if (fresh > 100) notes.push(note(batch.start - 0.5, "new tokens", "left"));
    if (fresh > 130) notes.push(note(batch.end - 0.5, String(batch.width), "right"));
    return notes;
  });
}

function lines({ batches, gap }) {
  const line = (x, style) => ({
    type: "line",
    x0: x,
    x1: x,
    y0: 0,
    y1: 1,
    yref: "paper",
    line: { width: 2, color: colour(style === "dot" ? "muted" : "text"), dash: style },
  });
  return batches.flatMap((batch, position) => {
    const inside = line(batch.start - 0.5 - gap / 2, "solid");
    return position ? [line(batch.promptStart - 0.5 - gap, "dot"), inside] : [inside];
  });
}

function drawPicture() {
  const pixels = plot.clientWidth;
  if (!pixels || !view) return; // in a hidden tab; the resize observer comes back
  const many = view.batches.length > 1;
  const margin = { l: many ? 72 : 44, r: 4, t: 6, b: AXIS_PIXELS };
  const range = zoom ?? [-0.5, view.columns - 0.5];
  const cell = (pixels - margin.l - margin.r) / (range[1] - range[0]);
  const rowHeight = Math.min(ROW_PIXELS, PICTURE_PIXELS / view.slots);
  const labelled = Math.ceil(16 / rowHeight);
  const slots = Array.from({ length: view.slots }, (_, slot) => slot);
  const ticks = slots.filter((slot) => slot % labelled === 0);
  view.z = cells(view);
  const trace = {
    type: "heatmap",
    z: view.z,
    x: Array.from({ length: view.columns }, (_, column) => column),
    y: slots,
    zmin: -0.5,
    zmax: STATES.length - 0.5,
    colorscale: colourScale(),
    showscale: false,
    hoverinfo: "none",
    xgap: cell > 7 ? 2 : cell > 3 ? 1 : 0,
    ygap: rowHeight > 24 ? 5 : rowHeight > 9 ? 2 : 1,
  };
  const layout = {
    uirevision: "constant",
    width: pixels,
    height: Math.round(rowHeight * view.slots) + margin.t + margin.b,
    margin,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(stage).fontFamily, color: colour("text") },
    dragmode: "zoom",
    xaxis: { range, showgrid: false, zeroline: false, showticklabels: false, ticks: "" },
    yaxis: {
      range: [view.slots - 0.5, -0.5],
      fixedrange: true,
      showgrid: false,
      zeroline: false,
      ticks: "",
      tickmode: "array",
      tickvals: ticks,
      ticktext: ticks.map((slot) => (many ? `slot ${slot + 1}` : String(slot + 1))),
      tickfont: { size: rowHeight > 24 ? 16 : 12, weight: 600 },
      ticklabelstandoff: 12,
    },
    shapes: lines(view),
    annotations: captions(view, (pixels * view.columns) / (range[1] - range[0])),
  };
  const config = { displayModeBar: false, doubleClick: false, showTips: false };
  Plotly.react(plot, [trace], layout, config);
  if (!plot.dataset.wired) wirePlot();
}

function wirePlot() {
  plot.dataset.wired = "yes";
  plot.on("plotly_relayout", (change) => {
    if (change["xaxis.range[0]"] === undefined) return;
    zoom = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    drawPicture();
  });
  plot.on("plotly_doubleclick", () => {
    zoom = null;
    drawPicture();
  });
  plot.on("plotly_hover", showHover);
  plot.on("plotly_click", showHover);
  plot.on("plotly_unhover", () => hoverOver(null));
}

// Lines about one cell: request, step, token, milliseconds.
function describe(slot, column) {
  const batch = view.batches.find((b) => column >= b.promptStart && column < b.end);
  if (!batch || slot >= batch.requests.length) return [];
  const request = batch.requests[slot];
  const who = `Request ${request + 1}, slot ${slot + 1}`;
  const time = (k) => (k < batch.times.length ? `${batch.times[k]} ms for all rows` : "not yet");
  if (column < batch.start) {
    const pads = batch.promptWidth - batch.lengths[slot];
    const place = column - batch.promptStart - (view.value.side === "left" ? pads : 0);
    const real = place >= 0 && place < batch.lengths[slot];
    const what = real ? `prompt token ${place + 1} of ${batch.lengths[slot]}` : "padding";
    return column < batch.promptStart + batch.promptWidth
      ? [who, `Step 1, prefill: ${what}`, time(0)]
      : [];
  }
  const k = column - batch.start;
  const step = `Step ${k + 1}, ${k ? "decode" : "out of the prefill"}`;
  const token = view.rows[request].tokens[k];
  if (k >= batch.times.length) return [who, step, "not yet"];
  if (!token) return [who, `${step}: idle, the row has ended`, time(k)];
  const last = k === view.rows[request].tokens.length - 1;
  const shown =
    token.text !== "" ? JSON.stringify(token.text)
    : last && view.value.ends[request] === "eos" ? "end of text"
    : "part of a character";
  return [who, step, `token ${shown} (id ${token.id})`, time(k)];
}

function showHover(event) {
  const { x, y } = event.points[0];
  hoverOver({ slot: y, column: x });
  const box = find("picture").getBoundingClientRect();
  const left = event.event.clientX - box.left + 14;
  hover.style.left = `${Math.max(4, Math.min(left, box.width - hover.offsetWidth - 8))}px`;
  hover.style.top = `${event.event.clientY - box.top + 18}px`;
}

function hoverOver(cell) {
  hovered = cell;
  const about = cell ? describe(cell.slot, cell.column) : [];
  hover.replaceChildren(...about.map((line) => make("div", "", line)));
  hover.hidden = about.length === 0;
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
      batch.promptWidth - batch.lengths[slot],
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
