// The lanes: a row per slot, a span per stay in it, all on one axis of seconds. Plotly draws them;
// what they are called stands above them as text of the page.

const STATES = ["prefill", "active", "idle"];
const PLANNED = "planned";
const compare = find("compare");
const plot = find("compare-plot");
const GUTTER = 26; // for the numbers of the slots
let shown = null; // the comparison that is drawn
let computed = null; // the computed lanes beside it
let end = { key: null, seconds: 0 }; // of the axis
let drawn = null; // places and pixels of the last picture

const letters = () => parseFloat(getComputedStyle(find("compare-lanes")).fontSize);
const colour = (name) => getComputedStyle(compare).getPropertyValue(`--bs-${name}`).trim();

function allLanes() {
  return [...shown.lanes, ...(computed?.lanes ?? [])];
}

// The axis ends with the longest lane; while one is measured it ends later, so that it seldom moves.
function endOfAxis(lanes) {
  const needed = Math.max(0.001, ...lanes.map(({ wall }) => wall));
  const live = shown.status === "running";
  if (end.key !== shown.key) end = { key: shown.key, seconds: 0 };
  if (!live || needed > end.seconds) end.seconds = live ? Math.max(1, 1.6 * needed) : needed;
  return end.seconds;
}

const presenting = () => compare.classList.contains("bs-compare-presenting");

// What is around the rows, as multiples of the size of the letters.
const around = () =>
  presenting()
    ? { title: 1.25, under: 0.15, apart: 0.2, below: 1.45 }
    : { title: 1.65, under: 0.4, apart: 0.9, below: 2.9 };

// How high a row is. A larger window has larger ones; a slide shares out the height that it has.
function rowHeight(slots, others) {
  if (presenting()) return Math.max(1, (find("compare-lanes").clientHeight - others) / slots);
  const roomy = Math.min(400, Math.max(0, innerHeight - 810)) / 2;
  return Math.max(slots <= 40 ? 12 : 4, Math.min(14 + roomy / 20, Math.floor((310 + roomy) / slots)));
}

// Where each lane is, in pixels from the top.
function layOut(lanes, width) {
  const size = letters();
  const { title, under, apart, below } = around();
  const sized = lanes.map((lane, index) => ({
    ...lane,
    before: index > 0 && lane.computed && !lanes[index - 1].computed ? apart * size : 0,
    head: title * size * (lane.slots ? 1 : Math.ceil((0.55 * size * lane.note.length) / width) + 1),
  }));
  const slots = sized.reduce((sum, lane) => sum + lane.slots, 0);
  const others = sized.reduce((sum, lane) => sum + lane.before + lane.head + under * size, below * size);
  const row = rowHeight(slots, others);
  let y = 0;
  const placed = sized.map((lane) => {
    const above = y + lane.before;
    const top = above + lane.head;
    y = top + lane.slots * row + under * size;
    return { ...lane, above, top };
  });
  return { placed, row, height: y, below: below * size };
}

// Rectangles as one line: around each of them, on to the next one, and at the end the same way back,
// so that nothing between them is filled. In pieces Plotly would take twice as long.
function outlines(boxes) {
  const x = [];
  const y = [];
  for (const [left, right, top, bottom] of boxes) {
    x.push(left, right, right, left, left);
    y.push(top, top, bottom, bottom, top);
  }
  for (const [left, , top] of boxes.slice(0, -1).reverse()) {
    x.push(left);
    y.push(top);
  }
  return { x, y };
}

// Who is idle is thin. A pixel is left between neighbours.
function boxOf(lane, [slot, , state, from, to], { row, across }) {
  const top = lane.top + slot * row;
  const height = row - (row > 9 ? 2 : 1);
  const less = STATES[state] === "idle" ? 0.32 * height : 0;
  return [from, Math.max(to - 1 / across, (from + to) / 2), top + less, top + height - less];
}

function filled(boxes, options) {
  const line = { simplify: false };
  return { type: "scatter", mode: "none", fill: "toself", hoverinfo: "skip", line, ...outlines(boxes), ...options };
}

// Measured spans are solid, computed ones hatched. They have no outlines: Plotly would draw each of
// them by itself.
function spanTraces(layout) {
  const traces = [];
  for (const isComputed of [false, true]) {
    for (const [code, state] of STATES.entries()) {
      const boxes = layout.placed
        .filter((lane) => lane.computed === isComputed)
        .flatMap((lane) => lane.spans.filter((span) => span[2] === code).map((span) => boxOf(lane, span, layout)));
      const own = colour(state);
      const hatched = { shape: "/", fgcolor: own, bgcolor: `${own}40`, fgopacity: 1, size: 5, solidity: 0.5 };
      traces.push(filled(boxes, { fillcolor: own, ...(isComputed && { fillpattern: hatched }) }));
    }
  }
  return traces;
}

// The slots as far as their lane goes, so that an empty one is seen.
function slotTrace(layout) {
  const boxes = layout.placed.flatMap((lane) =>
    Array.from({ length: lane.slots }, (_, slot) => boxOf(lane, [slot, 0, 0, 0, lane.wall || 0], layout)),
  );
  return filled(boxes, { fillcolor: colour(PLANNED) });
}

// Numbers of the requests, where there is room for them.
function numbers({ placed, row, across }) {
  if (row < 12) return [];
  return placed.flatMap((lane) =>
    lane.spans
      .filter(([, request, state, from, to]) => state === 1 && (to - from) * across > 9 * String(request + 1).length + 8)
      .map(([slot, request, , from, to]) => ({
        text: String(request + 1),
        left: GUTTER + ((from + to) / 2) * across,
        top: lane.top + (slot + 0.5) * row - 1,
        computed: lane.computed,
      })),
  );
}

function ticksUpTo(seconds, most) {
  const power = 10 ** Math.floor(Math.log10(seconds / most));
  const step = [1, 2, 5, 10].map((unit) => unit * power).find((each) => seconds / each <= most);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return Array.from({ length: Math.floor(seconds / step + 1e-9) + 1 }, (_, k) => [k * step, (k * step).toFixed(digits)]);
}

function drawLanes() {
  const width = plot.clientWidth;
  if (!shown || !width) return; // in a hidden tab; the resize observer comes back
  const lanes = allLanes();
  const seconds = endOfAxis(lanes);
  const size = letters();
  const right = presenting() ? 1.3 * size : 8; // for the end of the last label
  const inside = width - GUTTER - right;
  const across = inside / seconds;
  const layout = { ...layOut(lanes, inside), across };
  const ticks = ticksUpTo(seconds, Math.max(3, Math.min(12, inside / (6 * size))));
  const axis = { fixedrange: true, zeroline: false, ticks: "" };
  Plotly.react(
    plot,
    [slotTrace(layout), ...spanTraces(layout)],
    {
      width,
      height: Math.round(layout.height + layout.below),
      margin: { l: GUTTER, r: right, t: 0, b: layout.below },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(compare).fontFamily, color: colour("text"), size },
      showlegend: false,
      xaxis: {
        ...axis,
        range: [0, seconds],
        gridcolor: colour("line"),
        ticklabeloverflow: "allow",
        tickvals: ticks.map(([at]) => at),
        ticktext: ticks.map(([, text], k) => (presenting() && k === ticks.length - 1 ? `${text} s` : text)),
        tickfont: { color: colour("muted"), size: 0.93 * size },
        title: { text: presenting() ? "" : "seconds since the start", standoff: size / 3, font: { color: colour("muted"), size: 0.93 * size } },
      },
      yaxis: { ...axis, range: [layout.height, 0], showgrid: false, showticklabels: false },
    },
    { staticPlot: true },
  );
  drawn = { ...layout, width };
  drawTitles(layout);
  drawMarks(layout);
  compare.dataset.frames = Number(compare.dataset.frames ?? 0) + 1;
}

// The same nodes are kept: a lane under way changes ten times a second.
function drawTitles({ placed }) {
  const holder = find("compare-titles");
  while (holder.childElementCount > placed.length) holder.lastChild.remove();
  while (holder.childElementCount < placed.length) {
    const line = make("p");
    line.append(make("b"), make("span", "bs-compare-computed"), make("strong"), make("span", "bs-compare-note"));
    holder.append(line);
  }
  placed.forEach((lane, index) => {
    const line = holder.children[index];
    const [title, label, told, note] = line.children;
    line.style.top = `${lane.above}px`;
    line.classList.toggle("bs-compare-reason", !lane.slots);
    setText(title, lane.title);
    setText(label, lane.computed ? "computed" : "");
    label.hidden = !lane.computed;
    setText(told, lane.told.join(" · "));
    setText(note, lane.note);
  });
}

// Numbers of slots and of requests.
function drawMarks(layout) {
  const { placed, row } = layout;
  const slots = row < 12 ? [] : placed.flatMap((lane) =>
    lane.slots === 1 ? [] : Array.from({ length: lane.slots }, (_, slot) => ({
      text: String(slot + 1),
      left: GUTTER - 8,
      top: lane.top + (slot + 0.5) * row - 1,
      slot: true,
    })),
  );
  find("compare-marks").replaceChildren(
    ...[...slots, ...numbers(layout)].map(({ text, left, top, slot, computed }) => {
      const mark = make("span", slot ? "bs-compare-slot" : computed ? "bs-compare-plate" : "", text);
      mark.style.left = `${left}px`;
      mark.style.top = `${top}px`;
      return mark;
    }),
  );
}

// A small chart with two axes from 0, whose titles are words of this page.
function drawSmall(holder, traces, across, up) {
  const size = parseFloat(getComputedStyle(holder).fontSize);
  const axis = ({ title, range }) => ({
    title: { text: title, standoff: size / 3, font: { size, color: colour("muted") } },
    range,
    fixedrange: true,
    zeroline: false,
    gridcolor: colour("line"),
    tickfont: { color: colour("muted") },
    nticks: 6,
    ticklabelstandoff: size / 4,
  });
  Plotly.react(
    holder,
    traces.map((trace) => ({ cliponaxis: false, ...trace })),
    {
      width: holder.clientWidth,
      height: holder.clientHeight,
      margin: { l: 3.9 * size, r: size, t: 0.6 * size, b: 3.1 * size },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(compare).fontFamily, color: colour("text"), size },
      showlegend: false,
      xaxis: { ...axis(across), showgrid: false },
      yaxis: axis(up),
    },
    { staticPlot: true },
  );
}
