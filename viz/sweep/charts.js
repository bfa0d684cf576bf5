// The two charts, drawn by Plotly: tokens per second and time per token, against the batch size.

const sweep = find("sweep");
const rateChart = find("sweep-rate");
const tpotChart = find("sweep-tpot");
let shown = null; // the sweep that is drawn
let doubling = false; // whether the axes double from mark to mark; else they are linear, from 0
let tops = { key: null }; // where the upright axes of this sweep end, so that they do not move

const presenting = () => sweep.classList.contains("bs-sweep-presenting");
const letters = () => parseFloat(getComputedStyle(find("sweep-charts")).fontSize);
const colour = (name) => getComputedStyle(sweep).getPropertyValue(`--bs-${name}`).trim();
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });

// Where a value stands on an axis that may double.
const place = (value) => (doubling ? Math.log2(value) : value);

// Round steps of which at most five fit into a stretch, from the first that is in it.
function roundSteps(from, to) {
  const power = 10 ** Math.floor(Math.log10((to - from) / 5));
  const step = [1, 2, 5, 10].map((unit) => unit * power).find((each) => (to - from) / each <= 5);
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, k) => (first + k) * step);
}

// 1, 2, 5, 10, 20, ... between two numbers; fewer where those are too many.
function roundNumbers(from, to) {
  const powers = Array.from({ length: 15 }, (_, k) => 10 ** (k - 4));
  const between = (units) =>
    powers.flatMap((power) => units.map((unit) => power * unit)).filter((each) => each >= from && each <= to);
  return [[1, 2, 5], [1, 3], [1]].map(between).find((found) => found.length <= 6) ?? [];
}

function plainAxis(title) {
  return {
    title: { text: title, standoff: letters() / 2, font: { size: letters(), color: colour("muted") } },
    type: "linear",
    fixedrange: true,
    zeroline: false,
    showgrid: false,
    tickangle: 0,
    tickfont: { color: colour("muted") },
    ticks: "",
  };
}

// On a slide the heading of the chart has the unit.
const besideAxis = (title) => (presenting() ? "" : title);

// The axis of batch sizes is known before anything is measured. A size is named where there is room
// for its name, the outermost first.
function sizesAxis({ planned }, width) {
  const [least, most] = [planned[0], planned.at(-1)];
  const range = doubling ? [Math.log2(least) - 0.35, Math.log2(most) + 0.45] : [-0.06 * most, 1.1 * most];
  const across = width / (range[1] - range[0]);
  const named = apart(outermostFirst(planned), (size) => across * place(size), (size) => String(size));
  return {
    ...plainAxis(presenting() ? "batch size" : "batch size (rows)"),
    range,
    tickvals: named.map(place),
    ticktext: named.map(String),
    across,
  };
}

function outermostFirst(items) {
  return [...new Set([...items.slice(-1), ...items])];
}

// Those whose texts, centred where they stand, leave each other room; the first ones come first.
function apart(items, where, text) {
  const taken = [];
  return items.filter((item) => {
    const half = (0.5 + 0.56 * text(item).length) * 0.5 * letters();
    const free = taken.every(([from, to]) => where(item) + half < from || where(item) - half > to);
    if (free) taken.push([where(item) - half, where(item) + half]);
    return free;
  });
}

// Values beside their points, where there is room; `at` is where a value stands, beyond its spread.
function values(points, across, text, at, options) {
  const kept = new Set(apart(outermostFirst(points), ({ size }) => across * place(size), text));
  return {
    type: "scatter",
    mode: "markers+text", // the marker, which is not seen, keeps the text away from the point
    marker: { color: "rgba(0,0,0,0)", size: 0.8 * letters() },
    x: points.map(({ size }) => place(size)),
    y: points.map(at),
    // Not empty: Plotly would not bring back what was empty once.
    text: points.map((point) => (kept.has(point) ? text(point) : "\u00a0")),
    textfont: { color: colour("text"), weight: 600 },
    cliponaxis: false,
    ...options,
  };
}

// Median, and from the least to the most of the runs.
function measured(points, figure, along) {
  const spreads = points.map((point) => point[figure]);
  return {
    type: "scatter",
    mode: "lines+markers",
    x: points.map(({ size }) => place(size)),
    y: spreads.map(([median]) => along(median)),
    error_y: {
      type: "data",
      symmetric: false,
      array: spreads.map(([median, , most]) => along(most) - along(median)),
      arrayminus: spreads.map(([median, least]) => along(median) - along(least)),
      thickness: 0.13 * letters(),
      width: 0.4 * letters(),
      color: colour("text"),
    },
    line: { color: colour("active"), width: 0.2 * letters() },
    marker: { color: colour("active"), size: 0.6 * letters() },
    cliponaxis: false,
  };
}

function rateTraces({ points, planned, published }, across) {
  if (!points.length) return [];
  const [first] = points;
  const each = first.rate[0] / first.size;
  const trace = (corners, options) => ({
    type: "scatter",
    x: corners.map(([x]) => place(x)),
    y: corners.map(([, y]) => place(y)),
    ...options,
  });
  const perfect = [doubling ? first.size : 0, planned.at(-1)].map((size) => [size, each * size]);
  const theirs = published
    .filter(([size]) => size <= planned.at(-1))
    .map(([size, times]) => [size, times * first.rate[0]]);
  return [
    trace(perfect, { mode: "lines", line: { color: colour("muted"), width: 0.13 * letters(), dash: "dash" } }),
    trace(find("sweep-reference").checked ? theirs : [], {
      mode: "lines+markers",
      line: { color: colour("padded"), width: 0.13 * letters(), dash: "dot" },
      marker: {
        color: colour("padded"),
        size: 0.7 * letters(),
        symbol: "diamond-open",
        line: { width: 0.13 * letters() },
      },
    }),
    measured(points, "rate", place),
    values(points, across, ({ rate }) => number(rate[0]), ({ rate }) => place(rate[1]), {
      textposition: points.map(({ size }) => (size === planned.at(-1) ? "bottom center" : "bottom right")),
    }),
  ];
}

// The share of an axis from 0 that is left below it, for the value of a point near 0.
const below = (height) => (0.9 * letters()) / height;

// A top that holds as long as what is to fit under it does, and fills enough of it.
function steadyTop(name, needed) {
  if (tops.key !== shown.key) tops = { key: shown.key };
  if (!(needed <= tops[name] && needed > 0.7 * tops[name])) tops[name] = 1.08 * needed;
  return tops[name];
}

// The left axis has tokens per second; the right one the same as multiples of the first size, which
// are the ratios of the sizes: what perfect scaling gives.
function rateAxes({ points, planned }, height) {
  const [first] = points;
  const base = first?.rate[0] ?? 1;
  const each = base / (first?.size ?? 1);
  const most = steadyTop("rate", Math.max(each * planned.at(-1), ...points.map(({ rate }) => rate[2])));
  const least = 0.6 * each * planned[0];
  const range = doubling ? [Math.log2(least), Math.log2(most) + 0.2] : [-most * below(height), most];
  const ticks = doubling ? roundNumbers(least, most) : roundSteps(0, most);
  const along = height / (range[1] - range[0]);
  const taken = [];
  const named = planned.toReversed().filter((size) => {
    const at = along * place(each * size);
    const free = taken.every((other) => Math.abs(other - at) > 1.3 * letters());
    if (free) taken.push(at);
    return free;
  });
  return {
    yaxis: {
      ...plainAxis(besideAxis("output tok/s")),
      showgrid: true,
      gridcolor: colour("line"),
      range,
      tickvals: first ? ticks.map(place) : [],
      ticktext: first ? ticks.map(number) : [],
    },
    yaxis2: {
      ...plainAxis(besideAxis(first ? `times batch size ${first.size}` : "")),
      overlaying: "y",
      side: "right",
      range,
      tickvals: first ? named.map((size) => place(each * size)) : [],
      ticktext: first ? named.map((size) => `${number(size / first.size)} ×`) : [],
    },
  };
}

function tpotTraces({ points }, across) {
  const timed = points.filter(({ tpot }) => tpot);
  const held = timed.filter(({ floor }) => floor !== null);
  if (!timed.length) return [];
  const floor = {
    type: "scatter",
    mode: "lines+markers",
    x: held.map(({ size }) => place(size)),
    y: held.map(({ floor }) => floor),
    line: { color: colour("muted"), width: 0.13 * letters() },
    marker: { color: colour("muted"), size: 0.45 * letters(), symbol: "square" },
    cliponaxis: false,
  };
  const reached = values(held, across, ({ reached }) => reached, ({ floor }) => floor, {
    textposition: "bottom center",
    textfont: { color: colour("muted"), weight: 600 },
  });
  const paces = values(timed, across, ({ tpot }) => number(tpot[0]), ({ tpot }) => tpot[2], {
    textposition: "top center",
  });
  return [floor, reached, measured(timed, "tpot", (value) => value), paces];
}

// From 0; the top is the first time, and half as much again as often as it takes.
function tpotAxes({ points }, height) {
  const times = points.flatMap(({ tpot }) => tpot ?? []);
  const first = times[0] ?? 1;
  const needed = Math.max(...times, 1.2 * first) / 0.85;
  const most = first * 1.5 ** Math.ceil(Math.log(needed / first) / Math.log(1.5));
  const ticks = times.length ? roundSteps(0, most) : [];
  return {
    yaxis: {
      ...plainAxis(besideAxis("ms per token (TPOT)")),
      showgrid: true,
      gridcolor: colour("line"),
      range: [-most * below(height), most],
      tickvals: ticks,
      ticktext: ticks.map(number),
    },
  };
}

function drawChart(holder, makeTraces, makeAxes) {
  const width = holder.clientWidth;
  if (!width) return; // in a hidden tab; the resize observer comes back
  const size = letters();
  const margin = {
    l: (presenting() ? 2.6 : 4.2) * size,
    r: (holder !== rateChart ? 1 : presenting() ? 2.6 : 4.2) * size,
    t: 0.6 * size,
    b: (presenting() ? 2.7 : 3.4) * size,
  };
  const axes = makeAxes(shown, holder.clientHeight - margin.t - margin.b);
  const { across, ...xaxis } = sizesAxis(shown, width - margin.l - margin.r);
  const layout = {
    width,
    height: holder.clientHeight,
    margin,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(sweep).fontFamily, color: colour("text"), size },
    showlegend: false,
    xaxis,
    ...axes,
  };
  // Without a trace of its own an axis is not drawn.
  const empty = { type: "scatter", x: [0], y: [null], yaxis: axes.yaxis2 ? "y2" : "y" };
  Plotly.react(holder, [...makeTraces(shown, across), empty], layout, { staticPlot: true });
}

function drawCharts() {
  if (!shown) return;
  drawChart(rateChart, rateTraces, rateAxes);
  drawChart(tpotChart, tpotTraces, tpotAxes);
}

function setDoubling(on) {
  doubling = on;
  tops = { key: null };
  for (const button of sweep.querySelectorAll(".bs-sweep-axis button")) {
    button.setAttribute("aria-pressed", String((button.dataset.axis === "doubling") === on));
  }
  drawCharts();
}

for (const button of sweep.querySelectorAll(".bs-sweep-axis button")) {
  button.addEventListener("click", () => setDoubling(button.dataset.axis === "doubling"));
}
