// From the stage's value to rows and columns: what stands where, and in which state.

const CODES = { planned: 0, active: 1, padded: 2, idle: 3 };
const STATES = Object.keys(CODES);

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
    const promptWidth = Math.max(...batch.lengths);
    const pads = batch.lengths.map((length) => promptWidth - length);
    const firstReal = pads.map((count) => (value.side === "left" ? count : 0));
    return { ...batch, index, times, width, promptWidth, pads, firstReal };
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

// Which real token of a slot's prompt stands in column k of the prefill; null for a pad.
function realPlace(batch, slot, k) {
  const place = k - batch.firstReal[slot];
  return place >= 0 && place < batch.lengths[slot] ? place : null;
}

// The picture: z[slot][column] is a state's code, null where there is no slot.
function cells({ rows, batches, slots, columns }) {
  const z = Array.from({ length: slots }, () => new Array(columns).fill(null));
  for (const batch of batches) {
    batch.requests.forEach((request, slot) => {
      const row = z[slot];
      for (let k = 0; k < batch.promptWidth; k++) {
        const state = realPlace(batch, slot, k) === null ? "padded" : "active";
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
