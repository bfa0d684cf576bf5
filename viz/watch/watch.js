// The queue and the batches of a model; the stage beside them shows one of these (see state.py).

let picked = null; // the key of the batch that the reader chose; null follows the newest
let replayed = null; // the key of the batch whose replay is shown or asked for
let drawnMinutes = null;
let scheduled = 0;

// The batch to show: the chosen one as long as it is kept; else the one that is shown until it is
// over, then the newest that runs, or the last.
function followed() {
  const { batches } = told;
  if (!batches.some(({ key }) => key === picked)) picked = null;
  const shown = batches.find(({ key, running }) => running && key === watchRoot.dataset.shown);
  return picked ?? (shown ?? batches.find(({ running }) => running) ?? batches[0])?.key;
}

function makeLine() {
  const item = make("li");
  const button = Object.assign(make("button", "bs-watch-batch"), { type: "button" });
  button.append(...["dot", "name", "rows", "said", "gone"].map((name) => make("span", `bs-watch-${name}`)));
  button.addEventListener("click", () => pick(button.dataset.key));
  item.append(button);
  return item;
}

function drawBatches(shownKey) {
  const list = find("watch-batches");
  while (list.childElementCount > told.batches.length) list.lastChild.remove();
  while (list.childElementCount < told.batches.length) list.append(makeLine());
  told.batches.forEach((batch, i) => {
    const button = list.children[i].firstChild;
    setAttribute(button, "data-key", batch.key);
    setAttribute(button, "data-running", batch.running);
    setAttribute(button, "aria-pressed", batch.key === shownKey);
    const [, ...parts] = button.children;
    ["name", "rows", "said", "gone"].forEach((name, k) => setText(parts[k], batch[name]));
  });
  setAttribute(find("watch-live"), "aria-pressed", picked === null);
}

function drawFigures() {
  const { queue, minutes } = told;
  setText(find("watch-waiting"), queue.waiting);
  setText(find("watch-first"), queue.first);
  find("watch-fill").hidden = !minutes;
  if (!minutes) return;
  for (const name of ["median", "p90", "longest", "mean"]) setText(find(`watch-${name}`), minutes[name]);
  setText(find("watch-of"), `of ${minutes.batch_size} rows`);
  setText(find("watch-minutes"), minutes.said);
}

// The stage shows the batch as it grows; once it is over, with its replay.
function drawShown(key) {
  if (key in told.stages) {
    replayed = null;
    draws(() => drawLive(key), { now: run?.value.key !== key });
  } else if (replayed !== key) showReplay(key);
}

function drawLive(key) {
  const state = told?.stages[key];
  if (state && followed() === key) present(state); // else it has ended, or another was chosen meanwhile
}

async function showReplay(key) {
  replayed = key;
  const answered = await fetch(address(`watch/batches/${key}?${query()}`)).catch(() => null);
  const state = answered?.ok && (await answered.json());
  if (replayed !== key) return; // another was asked for meanwhile
  if (state) present(state);
  else replayed = null; // asked for again with the next news
}

function pick(key) {
  picked = key;
  drawWatch();
}

function drawAll() {
  scheduled = 0;
  if (!told) return; // another model was chosen meanwhile
  watchRoot.batchscope = told;
  const key = followed();
  watchRoot.dataset.shown = key ?? "";
  stage.hidden = !key;
  find("watch-empty").hidden = Boolean(key);
  find("watch-pick").hidden = !key;
  drawBatches(key);
  drawFigures();
  if (drawnMinutes !== told.minutes) drawFill((drawnMinutes = told.minutes));
  if (key) drawShown(key);
}

function drawWatch() {
  if (told) scheduled ||= requestAnimationFrame(drawAll);
}

function command() {
  const order = { model, prompt: ["Hello", "Why is the sky blue?"], max_tokens: 40 };
  const quoted = JSON.stringify(order).replaceAll("'", "'\\''");
  const key = props.asks_for_key ? ' \\\n  -H "Authorization: Bearer $KEY"' : "";
  return `curl ${address("v1/completions")} \\\n  -H "Content-Type: application/json"${key} \\\n  -d '${quoted}'`;
}

function drawCommand() {
  setText(find("watch-line"), command());
  setText(find("watch-base"), address("v1"));
  find("watch-key").hidden = !props.asks_for_key;
}

async function copyCommand() {
  const copied = await navigator.clipboard?.writeText(command()).then(() => true, () => false);
  if (!copied) getSelection().selectAllChildren(find("watch-line"));
  setText(find("watch-copy"), copied ? "Copied" : "Selected: copy it");
}

function chooseModel(name) {
  [model, told, picked, replayed] = [name, null, null, null];
  drawCommand();
  hush();
  listenInSight();
}

find("watch-model").append(...props.models.map((name) => make("option", "", name)));
find("watch-model-line").hidden = props.models.length === 1;
find("watch-model").addEventListener("change", ({ target }) => chooseModel(target.value));
find("watch-live").addEventListener("click", () => pick(null));
find("watch-copy").addEventListener("click", copyCommand);
// Whoever replays a batch stays with it when the next one begins.
const stay = () => inSight() && over() && pick(run.value.key);
find("controls").addEventListener("pointerdown", stay);
onDocument("keydown", (event) => event.defaultPrevented && stay());
find("watch-hidden").hidden = props.texts;
stage.hidden = true;
drawCommand();
new ResizeObserver(() => drawFill(told?.minutes)).observe(chart);
new MutationObserver(() => drawFill(told?.minutes)).observe(document.body, { attributes: true, attributeFilter: ["class"] });
