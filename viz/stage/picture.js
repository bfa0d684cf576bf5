// The heatmap: Plotly draws the cells, and a panel of its own says what is under the pointer.

const ROW_PIXELS = 50;
const PICTURE_PIXELS = 236;
const AXIS_PIXELS = 30;
const plot = find("plot");
const hover = find("hover");
let zoom = null; // the columns that the reader zoomed to, or null for all
let hovered = null; // the cell under a resting pointer: what it says changes as the run goes on

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
    const place = realPlace(batch, slot, column - batch.promptStart);
    const token = `prompt token ${place + 1} of ${batch.lengths[slot]}`;
    const what = place === null ? "padding" : token;
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
