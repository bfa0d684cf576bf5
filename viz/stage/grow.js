// The picture of a run under way grows: what is new is put into what Plotly has drawn. To draw
// everything anew takes it twenty milliseconds of a core that the engine may need. Where columns or
// sizes change, and at the end, all is Plotly's again.

const MEMORY_PARTS = { live: "active", padding: "padded", dead: "idle" };
const inPlot = (name) => plot.querySelector(name);
let growth = null; // the pixels of the cells, and the paths of the strip of memory

// Adds the newest columns to the picture -> whether that was enough.
function growPicture() {
  if (!drawn || axis !== "steps" || !sameColumns()) return false;
  growth ??= { cells: startCells(), memory: drawn.memory && startMemory() };
  const reached = drawn.places.map(({ batch }) => batch.times.length);
  drawn.places.forEach((place, i) => (place.batch = view.batches[i]));
  if (growCells(reached)) growSigns();
  if (growth.memory) growMemory();
  stage.batchscope = { ...view, places: drawn.places };
  return true;
}

function sameColumns() {
  const same = ({ batch }, i) => batch.index === view.batches[i].index && batch.width === view.batches[i].width;
  return drawn.places.length === view.batches.length && drawn.places.every(same);
}

// What grew is thrown away: Plotly draws.
function endGrowth() {
  if (growth?.memory) growth.memory.group.remove();
  for (const layer of plot.querySelectorAll(".xy2 .scatterlayer, .xy3 .scatterlayer")) layer.style.display = "";
  growth = null;
}

// The image of the cells as Plotly makes it, a pixel for each.
function startCells() {
  const { z, columns } = drawn;
  const canvas = Object.assign(make("canvas"), { width: columns.length, height: z.length });
  const cells = { canvas, context: canvas.getContext("2d", { willReadFrequently: true }), colours: STATES.map(colour) };
  z.forEach((row, slot) => row.forEach((code, column) => paintCell(cells, slot, column, code)));
  return cells;
}

function paintCell({ context, colours }, slot, column, code) {
  if (code === null) return;
  context.fillStyle = colours[code];
  context.fillRect(column, slot, 1, 1);
}

// Paints the columns of forwards from `reached` on, for each batch -> whether there were any.
function growCells(reached) {
  const { places, columns, z } = drawn;
  let any = false;
  places.forEach(({ batch, promptStart, start }, i) => {
    const paint = (from, to) => {
      for (let column = from; column < to; column++) {
        columns[column].batch = batch;
        for (let slot = 0; slot < z.length; slot++) {
          z[slot][column] = CODES[stateOf(view, columns[column], slot)] ?? null;
          paintCell(growth.cells, slot, column, z[slot][column]);
        }
      }
      any ||= to > from;
    };
    if (reached[i] === 0 && batch.times.length) paint(promptStart, promptStart + batch.promptWidth);
    paint(start + reached[i], start + batch.times.length);
  });
  const url = any && growth.cells.canvas.toDataURL("image/png");
  if (any) inPlot(".heatmaplayer image").setAttributeNS("http://www.w3.org/1999/xlink", "href", url);
  return any;
}

function growSigns() {
  const { margin, range, across, rowHeight, firstSign } = drawn;
  const at = (x, y) => `${margin.l + (x - range[0]) * across},${margin.t + (y + 0.5) * rowHeight}`;
  signs(at).forEach(({ path }, i) => setAttribute(inPlot(`.shapelayer path[data-index="${firstSign + i}"]`), "d", path));
}

// Paths of our own in the place of Plotly's, whose areas are made of more than one each.
function startMemory() {
  const shape = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
  const group = shape("g");
  const paths = {};
  for (const [part, state] of Object.entries(MEMORY_PARTS)) {
    paths[part] = group.appendChild(shape("path"));
    paths[part].style.fill = colour(state);
  }
  paths.working = group.appendChild(shape("path"));
  Object.assign(paths.working.style, { fill: "none", stroke: colour("text"), strokeWidth: "2px" });
  for (const layer of plot.querySelectorAll(".xy2 .scatterlayer, .xy3 .scatterlayer")) layer.style.display = "none";
  inPlot(".overplot .xy2").append(group);
  return { group, paths };
}

function growMemory() {
  const { places, range, across, memory } = drawn;
  const stairs = memoryLines(view, places);
  const peak = memoryPeak();
  const x = stairs.x.map((edge) => ((edge - range[0]) * across).toFixed(2));
  const { paths } = growth.memory;
  let under = stairs.x.map(() => 0);
  for (const part of Object.keys(MEMORY_PARTS)) {
    const top = stairs[part].map((bytes, i) => under[i] + bytes);
    const points = (heights) => heights.map((bytes, i) => `${x[i]},${height(bytes, peak)}`);
    const empty = stairs[part].every((bytes) => !bytes);
    setAttribute(paths[part], "d", empty ? "" : `M${points(top).concat(points(under).reverse()).join("L")}Z`);
    under = top;
  }
  const line = stairs.working.map((rows, i) =>
    rows === null ? "" : `${stairs.working[i - 1] == null ? "M" : "L"}${x[i]},${height(rows, view.slots)}`,
  );
  setAttribute(paths.working, "d", line.join(""));
  const label = inPlot(".y2tick tspan:last-child");
  if (label) setText(label, size(peak));

  function height(value, highest) {
    return (memory * (1 - value / (HEADROOM * highest))).toFixed(2);
  }
}
