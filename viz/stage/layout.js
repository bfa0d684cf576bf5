// From the stage's value to rows and columns: what stands where, and in which state.

const stage = find("stage");
const CODES = { planned: 0, active: 1, padded: 2, idle: 3 };
const STATES = Object.keys(CODES);
const CUT_OFF = ["cancelled", "error"]; // ends of rows that had none of their own
const fixed = props.fixed ? JSON.parse(props.fixed) : props; // what never changes; see stage.py
let run = null; // what the value says
let view = null; // the run as of the step that is shown, for hovering and for tests

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

const over = () => run !== null && run.value.status !== "running";
const inSight = () => stage.checkVisibility(); // not behind another tab

// The parts of a text in which `end` follows each, up to the last of them. A text that has grown
// since `before` is read from there on.
function readParts(text, end, readPart, before = { parts: [], read: 0 }) {
  const read = text.lastIndexOf(end) + 1;
  if (read > before.read) for (const part of text.slice(before.read, read - 1).split(end)) before.parts.push(readPart(part));
  return { parts: before.parts, read };
}

const unescape = (text) => text.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
const numbers = (group) => group.split("/").map(Number);

// "12 foo" -> a token; a slot that made none has an empty line.
function readToken(line) {
  const cut = line.indexOf(" ");
  return line && { id: line.slice(0, cut), text: unescape(line.slice(cut + 1)) };
}

// A line for each slot of each forward -> the tokens and the text of each slot.
function readLog(log, slots, before) {
  const known = before?.lines.parts.length ?? 0;
  const lines = readParts(log, "\n", readToken, before?.lines);
  const rows = before?.rows ?? slots.map(() => ({ tokens: [], text: "" }));
  lines.parts.slice(known).forEach((token, line) => {
    if (!token) return;
    const row = rows[line % slots.length];
    row.tokens.push(token);
    row.text += token.text;
  });
  return { lines, rows };
}

// Everything that the value says, read once; `viewAt` shows it as of a step. `before` is the same
// run when it had not grown as far.
function readRun(value, before) {
  const running = value.status === "running";
  const answers = []; // of each request
  const batches = value.batches.map((batch, index) => {
    const known = before?.batches[index].read;
    const kv = readParts(value.kv[index], " ", numbers, known?.kv); // "1/2/3 4/5/6 "
    const times = readParts(value.times[index], " ", numbers, known?.times);
    const log = readLog(value.logs[index], batch.requests, known?.log);
    batch.requests.forEach((request, slot) => (answers[request] = log.rows[slot]));
    const forwards = times.parts.map(([started, ms], k) => ({ started, ms, kv: kv.parts[k] }));
    const ended = !running || batch.requests.every((request) => value.ends[request]);
    const budget = Math.max(...batch.requests.map((request) => value.budgets[request]));
    const promptWidth = Math.max(...batch.lengths);
    const pads = batch.lengths.map((length) => promptWidth - length);
    const firstReal = pads.map((count) => (value.side === "left" ? count : 0));
    return { ...batch, index, read: { kv, times, log }, forwards, width: ended ? forwards.length : budget, promptWidth, pads, firstReal };
  });
  return {
    value,
    answers,
    batches,
    slots: Math.max(...batches.map((batch) => batch.requests.length)),
    steps: batches.reduce((sum, batch) => sum + batch.forwards.length, 0),
    stride: value.stride ?? 1,
    moments: value.moments && readMoments(value.moments),
  };
}

// Each moment is given as what differs from the one before.
function readMoments(differences) {
  const merge = (before, changes) => {
    if (Array.isArray(before)) return before.map((old, i) => (i in changes ? merge(old, changes[i]) : old));
    const after = { ...before };
    for (const [name, change] of Object.entries(changes)) {
      const nested = change?.constructor === Object && before[name];
      after[name] = nested ? merge(before[name], change) : change;
    }
    return after;
  };
  const moments = [];
  for (const changes of differences) moments.push(merge(moments.at(-1) ?? {}, changes));
  return moments;
}

// The run as it stood after `step` of its steps; a run under way has only its last.
function viewAt(run, step) {
  const last = step === run.steps;
  const moment = run.moments && run.moments[last ? run.moments.length - 1 : step / run.stride];
  const value = { ...run.value, ...moment };
  const rows = [];
  let before = 0;
  const batches = run.batches.map((batch) => {
    const done = Math.max(0, Math.min(step - before, batch.forwards.length));
    before += batch.forwards.length;
    for (const request of batch.requests) rows[request] = rowAt(run, request, done, last);
    return { ...batch, times: batch.forwards.slice(0, done).map((forward) => forward.ms) };
  });
  const shown = over() ? batches.filter((batch) => batch.forwards.length) : batches;
  return { ...run, value, step, last, rows, batches: shown };
}

function rowAt(run, request, done, last) {
  const { tokens, text: whole } = run.answers[request];
  const all = done >= tokens.length;
  const kept = all ? tokens : tokens.slice(0, done);
  const end = run.value.ends[request];
  const ended = end && (last || (kept.length === tokens.length && !CUT_OFF.includes(end)));
  const text = (all ? whole : kept.map((token) => token.text).join("")) + (last ? run.value.tails[request] : "");
  return { tokens: kept, text, state: ended ? end : done ? "running" : "waiting" };
}

// Columns side by side and the edges they stand between; `places` tells for each batch which
// columns are its own, and from where to where each of its forwards reaches.
function layOut(view, axis) {
  return axis === "time" ? layOutInTime(view.batches) : layOutInSteps(view.batches);
}

// Prompt, gap, new tokens, wider gap, next batch, all columns equally wide.
function layOutInSteps(batches) {
  const wide = batches.reduce((sum, b) => sum + b.promptWidth + b.width, 0);
  const gap = Math.max(1, Math.round(wide * 0.012));
  const columns = [];
  const put = (kind, batch, count) => {
    for (let k = 0; k < count; k++) columns.push({ kind, batch, k });
    return columns.length - count;
  };
  const places = batches.map((batch, position) => {
    if (position) put("gap", batch, 2 * gap);
    const promptStart = put("prompt", batch, batch.promptWidth);
    put("gap", batch, gap);
    const start = put("new", batch, batch.width);
    const spans = Array.from({ length: batch.width }, (_, k) => [start + k - 0.5, start + k + 0.5]);
    const prefill = [promptStart - 0.5, start + 0.5];
    return { batch, promptStart, start, spans: [prefill, ...spans.slice(1)], split: start - 0.5 - gap / 2 };
  });
  return { columns, places, edges: Array.from({ length: columns.length + 1 }, (_, i) => i - 0.5) };
}

// In seconds. A column is as wide as its forward took: the columns of a prompt share the prefill, and
// column 1 comes out of it, so it has no width of its own.
function layOutInTime(batches) {
  const columns = [];
  const edges = [0];
  const put = (kind, batch, k, to) => {
    columns.push({ kind, batch, k });
    edges.push(to);
  };
  const places = batches.filter((batch) => batch.forwards.length).map((batch) => {
    const starts = batch.forwards.map((forward) => forward.started / 1000);
    const end = starts.at(-1) + batch.forwards.at(-1).ms / 1000;
    const spans = starts.map((from, k) => [from, starts[k + 1] ?? end]);
    if (starts[0] > edges.at(-1)) put("gap", batch, 0, starts[0]);
    const [from, to] = spans[0];
    const promptStart = columns.length;
    for (let k = 1; k <= batch.promptWidth; k++) {
      put("prompt", batch, k - 1, from + ((to - from) * k) / batch.promptWidth);
    }
    const start = columns.length - 1;
    spans.slice(1).forEach(([, until], i) => put("new", batch, i + 1, until));
    return { batch, promptStart, start, spans, split: to };
  });
  return { columns, places, edges };
}

// Which real token of a slot's prompt stands in column k of the prefill; null for a pad.
function realPlace(batch, slot, k) {
  const place = k - batch.firstReal[slot];
  return place >= 0 && place < batch.lengths[slot] ? place : null;
}

function stateOf(view, { kind, batch, k }, slot) {
  if (kind === "gap" || slot >= batch.requests.length) return null;
  if (kind === "prompt") {
    if (!batch.times.length) return "planned";
    return realPlace(batch, slot, k) === null ? "padded" : "active";
  }
  if (k >= batch.times.length) return "planned";
  return k < view.rows[batch.requests[slot]].tokens.length ? "active" : "idle";
}

// The picture: z[slot][column] is a state's code, null where there is no slot.
function cells(view, columns) {
  return Array.from({ length: view.slots }, (_, slot) =>
    columns.map((column) => CODES[stateOf(view, column, slot)] ?? null),
  );
}

// What the cache held and how many rows worked, as stairs: two points for each forward.
function memoryLines(view, places) {
  const lines = { x: [], live: [], padding: [], dead: [], working: [] };
  const add = (x, [live, padding, dead], working) => {
    for (const [name, value] of Object.entries({ x, live, padding, dead, working })) lines[name].push(value);
  };
  for (const { batch, spans } of places) {
    add(spans[0]?.[0] ?? 0, [0, 0, 0], null);
    const lengths = batch.requests.map((request) => view.rows[request].tokens.length);
    batch.times.forEach((_, k) => {
      const working = lengths.filter((length) => length > k).length;
      for (const edge of spans[k]) add(edge, batch.forwards[k].kv, working);
    });
    if (batch.times.length) add(spans[batch.times.length - 1][1], [0, 0, 0], null);
  }
  return lines;
}
