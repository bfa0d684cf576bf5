// What a tile, a colour or a cell means, with this run's numbers: a panel beside what was asked.

const hover = find("hover");
const about = find("about");
let hovered = null; // the cell under a resting pointer: what it says changes as the run goes on
let pinned = null; // the cell whose panel is open
let asker = null; // what was clicked for the panel, to go back to

// Lines about one cell: request, step, token, milliseconds, cache.
function describe(slot, position) {
  const column = drawn.columns[position];
  if (!column || column.kind === "gap" || slot >= column.batch.requests.length) return [];
  const { kind, batch, k } = column;
  const request = batch.requests[slot];
  const who = `Request ${request + 1}, slot ${slot + 1}`;
  if (kind === "prompt") {
    const place = realPlace(batch, slot, k);
    const token = `prompt token ${place + 1} of ${batch.lengths[slot]}`;
    return [who, `Step 1, prefill: ${place === null ? "padding" : token}`, ...costs(batch, 0)];
  }
  const step = `Step ${k + 1}, ${k ? "decode" : "out of the prefill"}`;
  const { tokens } = view.rows[request];
  if (k >= batch.times.length) return [who, step, "not yet"];
  if (!tokens[k]) return [who, `${step}: idle, the row has ended`, ...costs(batch, k)];
  const end = k === tokens.length - 1 && view.value.ends[request] === "eos";
  const shown =
    tokens[k].text !== "" ? JSON.stringify(tokens[k].text) : end ? "end of text" : "part of a character";
  return [who, step, `token ${shown} (id ${tokens[k].id})`, ...costs(batch, k)];
}

function costs(batch, forward) {
  if (forward >= batch.times.length) return ["not yet"];
  const unit = view.value.tiles.at(-1).unit;
  const size = (bytes) => (bytes / BYTES[unit]).toFixed(1);
  const [live, padding, dead] = batch.forwards[forward].kv;
  const parts = `live ${size(live)}, padding ${size(padding)}, ended ${size(dead)}`;
  return [
    `${batch.times[forward]} ms for all rows`,
    `KV cache then: ${size(live + padding + dead)} ${unit} (${parts})`,
  ];
}

function hoverOver(cell, event) {
  hovered = cell;
  const lines = cell ? describe(cell.slot, cell.column) : [];
  hover.replaceChildren(...lines.map((line) => make("div", "", line)));
  hover.hidden = lines.length === 0;
  if (hover.hidden || !event) return;
  const box = find("picture").getBoundingClientRect();
  const left = event.clientX - box.left + 14;
  hover.style.left = `${Math.max(4, Math.min(left, box.width - hover.offsetWidth - 8))}px`;
  hover.style.top = `${event.clientY - box.top + 18}px`;
}

// By keyboard the panel stands under the cell.
function hoverAt(cell) {
  const { left, bottom } = cellBox(cell);
  hoverOver(cell, { clientX: left, clientY: bottom });
}

// Opens the panel under a node of the stage; the first line is its title.
function tell([title, ...lines], box) {
  find("about-lines").replaceChildren(...lines.map((line) => make("p", "", line)));
  about.querySelector("h3").textContent = title;
  about.hidden = false;
  const frame = stage.getBoundingClientRect();
  const room = frame.width - about.offsetWidth - 8;
  about.style.left = `${Math.max(0, Math.min(box.left - frame.left, room))}px`;
  about.style.top = `${Math.min(box.bottom, innerHeight - about.offsetHeight - 12) - frame.top + 6}px`;
}

function ask(node, lines) {
  if (asker === node && !about.hidden) return closeAbout();
  asker?.setAttribute("aria-expanded", "false");
  asker = node;
  pinned = null;
  node.setAttribute("aria-expanded", "true");
  tell(lines, node.getBoundingClientRect());
  about.focus({ preventScroll: true });
}

function pin(cell) {
  const lines = describe(cell.slot, cell.column);
  if (!lines.length) return;
  pinned = cell;
  asker = find("picture");
  tell(lines, cellBox(cell));
  about.focus({ preventScroll: true });
}

function retell() {
  if (about.hidden) return;
  if (pinned) tell(describe(pinned.slot, pinned.column), cellBox(pinned));
  else if (asker) tell(asker.explain(), asker.getBoundingClientRect());
}

function closeAbout() {
  if (about.hidden) return;
  if (asker.hasAttribute("aria-expanded")) asker.setAttribute("aria-expanded", "false");
  if (about.contains(document.activeElement)) asker.focus({ preventScroll: true });
  about.hidden = true;
  pinned = null;
}

// Makes a node a button that explains itself; `explain` gives the lines of the panel.
function explains(node, explain) {
  node.explain = explain;
  node.setAttribute("aria-expanded", "false");
  node.setAttribute("aria-haspopup", "dialog");
  node.addEventListener("click", () => ask(node, explain()));
}

find("about-close").addEventListener("click", closeAbout);
stage.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !about.hidden) {
    event.stopPropagation();
    closeAbout();
  }
});
document.addEventListener("pointerdown", (event) => {
  const inside = about.contains(event.target) || asker?.contains?.(event.target);
  if (!about.hidden && !inside) closeAbout();
});
