// What a tile, a colour or a cell means, with this run's numbers: a panel beside what was asked.

const hover = find("hover");
const about = find("about");
let hovered = null; // the cell under a resting pointer: what it says changes as the run goes on
let asker = null; // what the open panel is about: a node of the stage that explains itself
let pinned = null; // and if that is the picture, the cell

// Lines about one cell: request, step, token, milliseconds, cache.
function describe({ slot, batch: index, kind, k }) {
  const batch = view.batches.find((batch) => batch.index === index);
  if (!batch || kind === "gap" || slot >= batch.requests.length) return [];
  const request = batch.requests[slot];
  const who = `Request ${request + 1}, slot ${slot + 1}`;
  if (kind === "prompt") {
    const place = realPlace(batch, slot, k);
    const token = `prompt token ${place + 1} of ${batch.lengths[slot]}`;
    return [who, `Step 1, prefill: ${place === null ? "padding" : token}`, ...costs(batch, 0)];
  }
  const step = `Step ${k + 1}, ${k ? "decode" : "out of the prefill"}`;
  const { tokens, state } = view.rows[request];
  if (k >= batch.times.length) return [who, step, "not yet"];
  if (!tokens[k]) return [who, `${step}: idle, the row has ended`, ...costs(batch, k)];
  const shown = tokenWords(tokens[k].text, k === tokens.length - 1 ? state : "running");
  return [who, step, `token ${shown} (id ${tokens[k].id})`, ...costs(batch, k)];
}

// What became readable with a token, after which its row is in a state. Nothing does while a
// character is incomplete, or while the text may be the beginning of a stop string.
function tokenWords(text, state) {
  if (text === "") return { eos: "end of text", stop: "that completes the stop string" }[state] ?? "without text yet";
  return quoted(text) + (state === "stop" ? " and the stop string" : "");
}

// In quotes, and with nothing in it that turns the direction of what follows.
function quoted(text) {
  const escape = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(text).replace(/\p{Bidi_Control}/gu, escape);
}

function costs(batch, forward) {
  if (forward >= batch.times.length) return ["not yet"];
  const [live, padding, dead] = batch.forwards[forward].kv;
  const parts = `live ${size(live)}, padding ${size(padding)}, ended ${size(dead)}`;
  return [`${batch.times[forward]} ms for all rows`, `KV cache then: ${size(live + padding + dead)} (${parts})`];
}

// Tells about a cell at the pointer, or where it was told before; null tells nothing.
function hoverOver(cell, pointer) {
  if (!cell && !hovered) return;
  hovered = pinned ? null : cell;
  const lines = hovered ? describe(hovered) : [];
  hover.replaceChildren(...lines.map((line) => make("div", "", line)));
  hover.hidden = lines.length === 0;
  if (hover.hidden || !pointer) return;
  const box = find("picture").getBoundingClientRect();
  const left = pointer.clientX - box.left + 14;
  hover.style.left = `${Math.max(4, Math.min(left, box.width - hover.offsetWidth - 8))}px`;
  hover.style.top = `${pointer.clientY - box.top + 18}px`;
}

// By keyboard the words stand under the cell.
function hoverAt(cell) {
  const { left, bottom } = cellBox(cell);
  hoverOver(cell, { clientX: left, clientY: bottom });
}

// Cells under and beside their heads; a row or a column of which nothing is known is left out.
function factTable(columns, rows, facts) {
  const table = make("table");
  const head = (scope, text) => Object.assign(make("th", "", text), { scope });
  const lines = facts.split("\n").map((line) => line && line.split("\t"));
  const known = (_, column) => lines.some((cells) => cells[column]);
  if (columns.length) table.createTHead().insertRow().append(make("td"), ...columns.filter(known).map((text) => head("col", text)));
  const body = table.createTBody();
  lines.forEach((cells, index) => {
    if (!cells) return;
    body.insertRow().append(head("row", rows[index]), ...cells.filter(known).map((text) => make("td", "", text)));
  });
  return table;
}

// Makes a button one that explains itself; `explain` gives the title of the panel and what stands
// under it: lines of text, or nodes.
function explains(node, explain) {
  node.explain = explain;
  node.setAttribute("aria-expanded", "false");
  node.setAttribute("aria-haspopup", "dialog");
  node.addEventListener("click", () => (asker === node ? closeAbout() : openAbout(node)));
}

function pin(cell) {
  if (describe(cell).length) openAbout(find("picture"), cell);
}

function openAbout(node, cell = null) {
  closeAbout();
  hoverOver(null);
  [asker, pinned] = [node, cell];
  if (node.explain) node.setAttribute("aria-expanded", "true");
  tell();
  if (!presenting()) about.scrollIntoView({ block: "nearest" });
  about.focus({ preventScroll: true });
}

function closeAbout() {
  if (!asker) return;
  if (asker.explain) asker.setAttribute("aria-expanded", "false");
  if (about.contains(document.activeElement)) asker.focus({ preventScroll: true });
  about.hidden = true;
  asker = pinned = null;
}

// Fills the open panel, also as the run goes on, and puts it under what it is about.
function tell() {
  if (!asker) return;
  const [title, ...lines] = pinned ? describe(pinned) : asker.explain();
  if (title === undefined) return closeAbout();
  setText(about.querySelector("h3"), title);
  setAttribute(about, "aria-label", title);
  find("about-lines").replaceChildren(...lines.map((line) => (line.nodeType ? line : make("p", "", line))));
  about.hidden = false;
  const frame = stage.getBoundingClientRect();
  const { left, bottom } = pinned ? cellBox(pinned) : asker.getBoundingClientRect();
  const room = frame.width - about.offsetWidth - 8;
  about.style.left = `${Math.max(0, Math.min(left - frame.left, room))}px`;
  const covered = parseFloat(getComputedStyle(about).scrollMarginBottom); // below it, by other things
  const lowest = Math.max(0, innerHeight - about.offsetHeight - covered - 6);
  about.style.top = `${Math.min(bottom, lowest) - frame.top + 6}px`;
}

find("about-close").addEventListener("click", closeAbout);
find("picture").addEventListener("blur", () => hoverOver(null));
onDocument("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || !(asker || hovered)) return;
  event.preventDefault();
  if (asker) closeAbout();
  else hoverOver(null);
});
onDocument("pointerdown", (event) => {
  if (!about.contains(event.target) && !asker?.contains(event.target)) closeAbout();
});
