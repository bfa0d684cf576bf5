// The picture: Plotly draws the cells, and under them, on the same axis, what the cache held.

const ROW_PIXELS = 40;
const ROWS_PIXELS = 164;
const MEMORY_PIXELS = 52;
const HEADROOM = 1.08; // above what is highest in the strip of memory
const UNITS = { GB: 1e9, MB: 1e6, kB: 1e3, B: 1 };
const plot = find("plot");
let axis = "steps";
let drawn = null; // columns, places and pixels of the last picture
let zoom = null; // the stretch of the axis that the reader zoomed to, or null for all

const presenting = () => stage.classList.contains("bs-presenting");

// "4.1 MB"
function size(bytes) {
  const [unit, scale] = Object.entries(UNITS).find(([, scale]) => bytes >= scale) ?? ["B", 1];
  return scale > 1 ? `${(bytes / scale).toFixed(1)} ${unit}` : `${bytes} ${unit}`;
}

function colour(name) {
  return getComputedStyle(stage).getPropertyValue(`--bs-${name}`).trim();
}

function drawPicture() {
  const width = plot.clientWidth;
  if (!width || !view) return; // in a hidden tab; the resize observer comes back
  drawn = layOutOn(width);
  endGrowth();
  stage.batchscope = { ...view, places: drawn.places };
  find("unzoom").hidden = !zoom;
  const traces = [heatmap(), ...(drawn.memory ? memoryTraces() : [])];
  Plotly.react(plot, traces, layout(width), { displayModeBar: false, doubleClick: false, showTips: false });
  if (!plot.dataset.wired) wirePlot();
}

// Everything about columns and pixels. From top to bottom: rows, captions, and unless on a slide,
// the strip of memory and the labels of the axis.
function layOutOn(width) {
  const { columns, places, edges } = layOut(view, axis);
  const letters = parseFloat(getComputedStyle(plot).fontSize);
  const taller = 1 + Math.max(0, innerHeight - 810) / 300; // a larger window has a larger picture
  const memory = presenting() ? 0 : MEMORY_PIXELS * taller;
  const roomy = memory > 0 && width > 520; // for labels beside the strip of memory
  const axisLabels = memory && 1.7 * letters;
  const whole = { l: (roomy ? 5.2 : 1.8) * letters, r: roomy ? 4.6 * letters : 4, t: 4, b: axisLabels };
  const margin = Object.fromEntries(Object.entries(whole).map(([side, pixels]) => [side, Math.round(pixels)])); // as Plotly does
  const around = margin.t + 1.7 * letters + memory + axisLabels;
  const rows = presenting()
    ? Math.max(40, plot.parentElement.clientHeight - around - letters / 2)
    : taller * Math.min(ROWS_PIXELS, ROW_PIXELS * view.slots);
  if (zoom && zoom[0] >= edges.at(-1)) zoom = null; // a batch that ended early took it away
  const range = zoom ?? [edges[0], edges.at(-1) > edges[0] ? edges.at(-1) : 1];
  const across = (width - margin.l - margin.r) / (range[1] - range[0]);
  const widths = columns.flatMap(({ kind }, i) => (kind === "gap" ? [] : edges[i + 1] - edges[i]));
  const [narrowest, rowHeight] = [across * Math.min(...widths), rows / view.slots];
  return {
    columns,
    places,
    edges,
    z: cells(view, columns),
    letters,
    memory,
    roomy,
    margin,
    rows,
    rowHeight,
    height: Math.round(rows + around),
    range,
    across,
    narrowest,
    gaps: { x: narrowest > 7 ? 2 : narrowest > 3 ? 1 : 0, y: rowHeight > 24 ? 5 : rowHeight > 9 ? 2 : 1 },
  };
}

function heatmap() {
  const { z, edges } = drawn;
  const share = 1 / STATES.length;
  return {
    type: "heatmap",
    z,
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
    xgap: painted() ? 0 : drawn.gaps.x,
    ygap: painted() ? 0 : drawn.gaps.y,
  };
}

// Cells of one size without gaps are a pixel each for Plotly, which takes a tenth of the time; the
// gaps are lines above them.
const painted = () => axis === "steps";

function gapLines() {
  if (!painted()) return [];
  const { edges, gaps } = drawn;
  const [left, right, bottom] = [edges[0], edges.at(-1), view.slots - 0.5];
  const across = Array.from({ length: view.slots + 1 }, (_, slot) => `M${left},${slot - 0.5}H${right}`);
  const down = edges.map((x) => `M${x},-0.5V${bottom}`);
  const line = (path, width) => {
    return { type: "path", path: path.join(""), xref: "x", yref: "y", line: { width, color: colour("panel") } };
  };
  return [line(across, gaps.y), ...(gaps.x ? [line(down, gaps.x)] : [])];
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
  const { margin, height, range, rows, memory, letters } = drawn;
  const inside = height - margin.t - margin.b;
  const under = [...gapLines(), ...lines()];
  drawn.firstSign = under.length;
  return {
    width,
    height,
    margin,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(stage).fontFamily, color: colour("text"), size: letters },
    dragmode: "zoom",
    xaxis: { ...plain(), range, anchor: memory ? "y2" : "y", fixedrange: false, ...ticks() },
    yaxis: { ...plain(), ...slotLabels(), domain: [1 - rows / inside, 1], range: [view.slots - 0.5, -0.5] },
    ...(memory ? memoryAxes(memory / inside) : {}),
    shapes: [...under, ...signs()],
    annotations: captions(),
  };
}

function plain() {
  const tickfont = { size: 0.92 * drawn.letters, color: colour("muted") };
  return { showgrid: false, zeroline: false, ticks: "", tickangle: 0, ticklabeloverflow: "allow", fixedrange: true, tickfont };
}

// Where the axis is labelled: milliseconds, or every so many new tokens of each batch.
function ticks() {
  if (!drawn.memory) return { showticklabels: false };
  if (axis === "time") return { nticks: 8, ticksuffix: " s" };
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

function memoryPeak() {
  const totals = run.batches.flatMap(({ forwards }) => forwards.map(({ kv }) => kv[0] + kv[1] + kv[2]));
  return totals.reduce((most, total) => Math.max(most, total), 1);
}

// The peak stays where it is in a replay, so that the axis does not jump.
function memoryAxes(share) {
  const peak = memoryPeak();
  const rows = view.slots === 1 ? "1 row" : `${view.slots} rows`;
  const at = (highest, label) => ({
    ...plain(),
    domain: [0, share],
    anchor: "x",
    range: [0, HEADROOM * highest],
    showticklabels: drawn.roomy,
    tickvals: [highest / 2],
    ticktext: [label],
  });
  return {
    yaxis2: at(peak, `KV cache<br>${size(peak)}`),
    yaxis3: { ...at(view.slots, `━ working<br>${rows}`), overlaying: "y2", side: "right" },
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
// sign: one path for each state, where cells are wide enough. And where it is known whose client has
// left, a line through what was computed for nobody. `at` writes a point.
function signs(at = (x, y) => `${x},${y}`) {
  const { z, edges, narrowest, rowHeight, letters, across } = drawn;
  const gone = view.value.marks ? [goneSign(at)] : [];
  if (narrowest < 7 || rowHeight < 12) return gone;
  const sign = (state, width, rise, thickness) => {
    const half = Math.min(width * letters, narrowest / 3) / across;
    const path = z.flatMap((row, slot) =>
      row.map((code, i) => {
        if (code !== CODES[state]) return "";
        const middle = (edges[i] + edges[i + 1]) / 2;
        return `M${at(middle - half, slot + rise)}L${at(middle + half, slot - rise)}`;
      }),
    );
    const line = { width: thickness ?? 2 * half * across, color: colour("panel") };
    return { type: "path", path: path.join("") || "M0,0", xref: "x", yref: "y", opacity: 0.6, line };
  };
  return [sign("padded", 0.25, (0.36 * letters) / rowHeight, 0.11 * letters), sign("idle", 0.1, 0), ...gone];
}

function goneSign(at) {
  const path = drawn.places.flatMap(({ batch, start }) =>
    batch.requests.map((request, slot) => {
      const { left } = view.value.marks[request];
      const first = left === null ? -1 : batch.forwards.findIndex(({ started }) => started >= 1000 * left);
      const end = view.rows[request].tokens.length;
      if (first < 0 || first >= end) return "";
      return `M${at(drawn.edges[start + first], slot)}L${at(drawn.edges[start + end], slot)}`;
    }),
  );
  const line = { width: 0.2 * drawn.letters, color: colour("panel") };
  return { type: "path", path: path.join("") || "M0,0", xref: "x", yref: "y", line };
}

// What stands under the columns that are in view, as long as their place allows.
function captions() {
  const { letters, across, range } = drawn;
  const within = (x) => Math.max(range[0], Math.min(x, range[1]));
  const note = (x, text) => ({
    x,
    y: 0,
    yref: "y domain",
    yanchor: "top",
    yshift: -0.2 * letters,
    xanchor: "left",
    text,
    showarrow: false,
    font: { size: letters, color: colour("muted") },
  });
  const fitting = (names, count, width) =>
    names.map((name) => name.replace("{}", count)).find((text) => (text.length * 0.53 + 1) * letters < width * across);
  return drawn.places.flatMap(({ batch, spans, split, start }) => {
    const [from, middle, to] = [spans[0][0], split, spans.at(-1)[1]].map(within);
    const prompt = fitting(batch.names.prompt, batch.promptWidth, middle - from);
    const fresh = fitting(batch.names.new, batch.width, to - middle);
    const afterGap = within(axis === "steps" ? start - 0.5 : split);
    return [...(prompt ? [note(from, prompt)] : []), ...(fresh ? [note(afterGap, fresh)] : [])];
  });
}

// A cell is named by what it is, since columns move when a batch ends before its budget.
function cellAt(slot, column) {
  const { batch, kind, k } = drawn.columns[column];
  return { slot, batch: batch.index, kind, k };
}

function columnOf(cell) {
  return drawn.columns.findIndex((c) => c.batch.index === cell.batch && c.kind === cell.kind && c.k === cell.k);
}

// Where a cell is on the screen: its left edge and its bottom.
function cellBox(cell) {
  const box = plot.getBoundingClientRect();
  const left = box.left + drawn.margin.l + (drawn.edges[columnOf(cell)] - drawn.range[0]) * drawn.across;
  return { left, bottom: box.top + drawn.margin.t + (cell.slot + 1) * drawn.rowHeight };
}

function unzoom() {
  zoom = null;
  closeAbout();
  drawPicture();
}

find("unzoom").addEventListener("click", unzoom);

function wirePlot() {
  plot.dataset.wired = "yes";
  plot.on("plotly_relayout", (change) => {
    if (change["xaxis.range[0]"] === undefined) return;
    zoom = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    drawPicture();
  });
  plot.on("plotly_doubleclick", unzoom);
  const under = ({ points }) => cellAt(...points[0].pointNumber);
  plot.on("plotly_hover", (event) => hoverOver(under(event), event.event));
  plot.on("plotly_click", (event) => pin(under(event)));
  plot.on("plotly_unhover", () => hoverOver(null));
}
