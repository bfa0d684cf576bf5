// What is under the pointer: one request, told in a line below the lanes and marked in all of them.

const DOING = ["reads its prompt", "generates", "is idle"];

function spanAt(event) {
  if (!drawn) return null;
  const { left, top } = plot.getBoundingClientRect();
  const [x, y] = [(event.clientX - left - GUTTER) / drawn.across, event.clientY - top];
  for (const lane of drawn.placed) {
    const slot = Math.floor((y - lane.top) / drawn.row);
    const span = lane.spans.find(([at, , , from, to]) => at === slot && from <= x && x < to);
    if (span) return { lane, span };
  }
  return null;
}

const inSeconds = (value) => `${value.toFixed(2)} s`;

function tell(found) {
  const line = find("compare-detail");
  if (!found) return setText(line, "Point at a span to see whose it is.");
  const { lane, span } = found;
  const [slot, request, state, from, to] = span;
  const where = lane.slots > 1 ? `, slot ${slot + 1}` : "";
  const how = lane.computed ? " (computed)" : "";
  const prompt = shown.prompts[request] ?? "";
  setText(
    line,
    `${lane.title}${how}${where}: request ${request + 1} ${DOING[state]} from ${inSeconds(from)} to ${inSeconds(to)}. ${prompt}`,
  );
}

// The stays of a request in all lanes, each from its first span to its last.
function mark(request) {
  const marks = [];
  for (const lane of request === null ? [] : drawn.placed) {
    const spans = lane.spans.filter((span) => span[1] === request);
    if (!spans.length) continue;
    const [from, to] = [Math.min(...spans.map((span) => span[3])), Math.max(...spans.map((span) => span[4]))];
    const box = make("i");
    box.style.left = `${GUTTER + from * drawn.across - 2}px`;
    box.style.width = `${(to - from) * drawn.across + 3}px`;
    box.style.top = `${lane.top + spans[0][0] * drawn.row - 2}px`;
    box.style.height = `${drawn.row + 2}px`;
    marks.push(box);
  }
  find("compare-chosen").replaceChildren(...marks);
}

function point(event) {
  const found = event && spanAt(event);
  tell(found);
  mark(found ? found.span[1] : null);
}

tell(null);
plot.addEventListener("pointermove", point);
plot.addEventListener("pointerdown", point);
plot.addEventListener("pointerleave", () => point(null));
