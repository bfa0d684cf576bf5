// The picture: Plotly draws the cells, and under them, on the same axis, what the cache held.

const ROW_PIXELS = 40;
const ROWS_PIXELS = 164;
const MEMORY_PIXELS = 52;
const BYTES = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9 };
const plot = find("plot");
let axis = "steps";
let drawn = null; // columns, places and pixels of the last picture
let zoom = null; // the stretch of the axis that the reader zoomed to, or null for all

const presenting = () => stage.classList.contains("bs-presenting");

function colour(name) {
  return getComputedStyle(stage).getPropertyValue(`--bs-${name}`).trim();
}

function drawPicture() {
  const width = plot.clientWidth;
  if (!width || !view) return; // in a hidden tab; the resize observer comes back
  drawn = { ...layOut(view, axis), ...sizes(width) };
  drawn.range = zoom ?? [drawn.edges[0], drawn.edges.at(-1)];
  drawn.across = (width - drawn.margin.l - drawn.margin.r) / (drawn.range[1] - drawn.range[0]);
  const widths = drawn.columns.flatMap(({ kind }, i) => (kind === "gap" ? [] : drawn.edges[i + 1] - drawn.edges[i]));
  drawn.narrowest = drawn.across * Math.min(...widths);
  view.z = cells(view, drawn.columns);
  view.places = drawn.places;
  const traces = [heatmap(), ...(drawn.memory ? memoryTraces() : [])];
  Plotly.react(plot, traces, layout(width), { displayModeBar: false, doubleClick: false, showTips: false });
  if (!plot.dataset.wired) wirePlot();
}

// All pixels. From top to bottom: rows, captions, and unless on a slide, the strip of memory and
// the labels of the axis.
function sizes(width) {
  const letters = parseFloat(getComputedStyle(plot).fontSize);
  const memory = presenting() ? 0 : MEMORY_PIXELS;
  const roomy = memory > 0 && width > 520; // for labels beside the strip of memory
  const axisLabels = memory && 1.7 * letters;
  const captions = 1.7 * letters;
  const margin = { l: (roomy ? 5.2 : 1.8) * letters, r: roomy ? 4.6 * letters : 4, t: 4, b: axisLabels };
  const around = margin.t + captions + memory + axisLabels;
  const rows = presenting()
    ? Math.max(40, plot.parentElement.clientHeight - around - letters / 2)
    : Math.min(ROWS_PIXELS, ROW_PIXELS * view.slots);
  return { letters, memory, roomy, margin, rows, height: Math.round(rows + around), rowHeight: rows / view.slots };
}

function heatmap() {
  const { edges, narrowest, rowHeight } = drawn;
  const share = 1 / STATES.length;
  return {
    type: "heatmap",
    z: view.z,
    x: edges,
    y: Array.from({ length: view.slots }, (_, slot) => slot),
    zmin: -0.5,
    zmax: STATES.length - 0.5,
    colorscale: STATES.flatMap((state, code) => [
      [code * share, colour(state)],
      [(code + 1) * share, colour(state)],
    ]),
    showscale: false,
    hoverinfo: "none",
    xgap: narrowest > 7 ? 2 : narrowest > 3 ? 1 : 0,
    ygap: rowHeight > 24 ? 5 : rowHeight > 9 ? 2 : 1,
  };
}

function memoryTraces() {
  const stairs = memoryLines(view, drawn.places);
  const trace = { type: "scatter", mode: "lines", x: stairs.x, hoverinfo: "skip", showlegend: false };
  const area = (part, state) => ({
    ...trace,
    y: stairs[part],
    yaxis: "y2",
    stackgroup: "bytes",
    fillcolor: colour(state),
    line: { width: 0, color: colour(state) },
  });
  return [
    area("live", "active"),
    area("padding", "padded"),
    area("dead", "idle"),
    { ...trace, y: stairs.working, yaxis: "y3", line: { width: 2, color: colour("text") } },
  ];
}

function layout(width) {
  const { margin, height, range, rows, memory } = drawn;
  const inside = height - margin.t - margin.b;
  return {
    uirevision: "constant",
    width,
    height,
    margin,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(stage).fontFamily, color: colour("text"), size: drawn.letters },
    dragmode: "zoom",
    xaxis: { ...plain(), range, anchor: memory ? "y2" : "y", fixedrange: false, ...ticks() },
    yaxis: { ...plain(), ...slotLabels(), domain: [1 - rows / inside, 1], range: [view.slots - 0.5, -0.5] },
    ...(memory ? memoryAxes(memory / inside) : {}),
    shapes: [...lines(), ...signs()],
    annotations: captions(),
  };
}

function plain() {
  const tickfont = { size: 0.92 * drawn.letters, color: colour("muted") };
  return { showgrid: false, zeroline: false, ticks: "", tickangle: 0, fixedrange: true, tickfont };
}

// Where the axis is labelled: milliseconds, or every so many new tokens of each batch.
function ticks() {
  if (!drawn.memory) return { showticklabels: false };
  if (axis === "time") return { nticks: 8, ticksuffix: " ms", separatethousands: true };
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500];
  const every = steps.find((n) => n * drawn.across > 2.6 * drawn.letters) ?? 1000;
  const marks = drawn.places.flatMap(({ batch, start }) =>
    Array.from({ length: batch.width }, (_, k) => [start + k, k + 1]).filter(([, k]) => k % every === 0 || k === 1),
  );
  return { tickmode: "array", tickvals: marks.map(([x]) => x), ticktext: marks.map(([, k]) => String(k)) };
}

function slotLabels() {
  const { rowHeight, letters, roomy } = drawn;
  const every = Math.ceil(((presenting() ? 0.9 : 1.25) * letters) / rowHeight);
  const tickvals = Array.from({ length: view.slots }, (_, slot) => slot).filter((slot) => slot % every === 0);
  const named = roomy && view.value.batches.length > 1;
  return {
    tickmode: "array",
    tickvals,
    ticktext: tickvals.map((slot) => (named ? `slot ${slot + 1}` : String(slot + 1))),
    tickfont: { size: (rowHeight > 1.8 * letters ? 1.2 : 1) * letters, weight: 600, color: colour("text") },
    ticklabelstandoff: 12,
  };
}

// The peak stays where it is in a replay, so that the axis does not jump.
function memoryAxes(share) {
  const unit = view.value.tiles.at(-1).unit;
  const peak = Math.max(1, ...view.batches.flatMap(({ forwards }) => forwards.map(({ kv }) => kv[0] + kv[1] + kv[2])));
  const rows = view.slots === 1 ? "1 row" : `${view.slots} rows`;
  const at = (highest, label) => ({
    ...plain(),
    domain: [0, share],
    anchor: "x",
    range: [0, 1.08 * highest],
    showticklabels: drawn.roomy,
    tickvals: [highest],
    ticktext: [label],
  });
  return {
    yaxis2: at(peak, `KV cache<br>${(peak / BYTES[unit]).toFixed(1)} ${unit}`),
    yaxis3: { ...at(view.slots, `working<br>${rows}`), overlaying: "y2", side: "right" },
  };
}

// Solid between a prompt and its new tokens, dotted between batches.
function lines() {
  const line = (x, dash) => ({
    type: "line",
    x0: x,
    x1: x,
    y0: 0,
    y1: 1,
    yref: "y domain",
    line: { width: 2, dash, color: colour(dash === "dot" ? "muted" : "text") },
  });
  const between = drawn.places.slice(1).map(({ spans }, i) => (drawn.places[i].spans.at(-1)[1] + spans[0][0]) / 2);
  return [...drawn.places.map(({ split }) => line(split, "solid")), ...between.map((x) => line(x, "dot"))];
}

// A stroke through each padded cell and a dot in each idle one, so that colour is not the only
// sign: one path for each state, where cells are wide enough.
function signs() {
  const { columns, edges, narrowest, rowHeight, letters } = drawn;
  if (narrowest < 7 || rowHeight < 12) return [];
  const tall = (0.36 * letters) / rowHeight;
  const wide = { padded: 0.25 * letters, idle: 0.1 * letters };
  return ["padded", "idle"].map((state) => {
    const rise = state === "padded" ? tall : 0;
    const half = Math.min(wide[state], narrowest / 3) / drawn.across;
    const path = view.z.flatMap((row, slot) =>
      row.map((code, i) => {
        if (code !== CODES[state]) return "";
        const middle = (edges[i] + edges[i + 1]) / 2;
        return `M${middle - half},${slot + rise}L${middle + half},${slot - rise}`;
      }),
    );
    const width = state === "padded" ? 0.11 * letters : 2 * half * drawn.across;
    return { type: "path", path: path.join("") || "M0,0", xref: "x", yref: "y", opacity: 0.6, line: { width, color: colour("panel") } };
  });
}

// What stands under the columns, as long as their place allows.
function captions() {
  const { letters, across } = drawn;
  const note = (x, text, xanchor) => ({
    x,
    y: 0,
    yref: "y domain",
    yanchor: "top",
    yshift: -0.2 * letters,
    xanchor,
    text,
    showarrow: false,
    font: { size: letters, color: colour("muted") },
  });
  // The longest text that leaves room for the count at the other end.
  const fitting = (texts, width) => texts.find((text) => (text.length * 0.53 + 3) * letters < width * across);
  return drawn.places.flatMap(({ batch, spans, split, start }) => {
    const [from, to] = [spans[0][0], spans.at(-1)[1]];
    const [one, last] = [batch.requests[0] + 1, batch.requests.at(-1) + 1];
    const name = `batch ${batch.index + 1}`;
    const members = one === last ? `${name}: request ${one}` : `${name}: requests ${one}–${last}`;
    const prompt = fitting(
      view.value.batches.length > 1
        ? [members, name]
        : ["prompt tokens, all in one prefill forward", "prompt tokens", "prompt"],
      split - from,
    );
    const fresh = fitting(["new tokens, one forward each", "new tokens"], to - split);
    return [
      ...(prompt ? [note(from, prompt, "left")] : []),
      ...(prompt && axis === "steps" ? [note(from + batch.promptWidth, String(batch.promptWidth), "right")] : []),
      ...(fresh ? [note(axis === "steps" ? start - 0.5 : split, fresh, "left"), note(to, String(batch.width), "right")] : []),
    ];
  });
}

// Where a cell is on the screen: its left edge and its bottom.
function cellBox({ slot, column }) {
  const box = plot.getBoundingClientRect();
  const left = box.left + drawn.margin.l + (drawn.edges[column] - drawn.range[0]) * drawn.across;
  return { left, bottom: box.top + drawn.margin.t + (slot + 1) * drawn.rowHeight };
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
  const cellOf = ({ points }) => ({ slot: points[0].pointNumber[0], column: points[0].pointNumber[1] });
  plot.on("plotly_hover", (event) => hoverOver(cellOf(event), event.event));
  plot.on("plotly_click", (event) => pin(cellOf(event)));
  plot.on("plotly_unhover", () => hoverOver(null));
}
