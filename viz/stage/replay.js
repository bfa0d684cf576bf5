// One cursor over the steps of a run that is over: play, pause, speed, slider, keys.

const cursor = find("cursor");
const play = find("play");
const picture = find("picture");
const still = matchMedia("(prefers-reduced-motion: reduce)").matches; // nothing plays by itself
let playing = 0; // the animation frame that is asked for, or 0

const inSight = () => stage.isConnected && stage.checkVisibility(); // not behind another tab
const over = () => run !== null && run.value.status !== "running";

// Milliseconds from the start of the run to the end of each step; 0 before the first.
function ends() {
  return [0, ...run.batches.flatMap((b) => b.forwards.map(({ started, ms }) => started + ms))];
}

function moveTo(step) {
  pause();
  show(Math.max(0, Math.min(step, run.steps)));
}

function pause() {
  cancelAnimationFrame(playing);
  playing = 0;
  showPlaying();
}

// Plays from the cursor, or from the start when it is at the end; a step at its own recorded time.
function startPlaying() {
  if (!over() || !run.steps) return;
  const times = ends();
  if (view.step === run.steps) show(0);
  let at = times[view.step];
  let before = performance.now();
  const frame = (now) => {
    at += (now - before) * Number(find("speed").value);
    before = now;
    let step = view.step;
    while (step < run.steps && times[step + 1] <= at) step += 1;
    if (step !== view.step) show(step);
    playing = step < run.steps ? requestAnimationFrame(frame) : 0;
    if (!playing) showPlaying();
  };
  cancelAnimationFrame(playing);
  playing = requestAnimationFrame(frame);
  showPlaying();
}

function togglePlaying() {
  if (playing) pause();
  else startPlaying();
}

function showPlaying() {
  play.textContent = playing ? "❚❚" : "▶";
  play.setAttribute("aria-label", playing ? "Pause" : "Play");
}

function drawControls() {
  const idle = !over() || !run.steps;
  cursor.disabled = play.disabled = idle;
  cursor.max = run.steps;
  cursor.value = view.step;
  cursor.style.setProperty("--bs-reached", run.steps ? view.step / run.steps : 1);
  cursor.setAttribute("aria-valuetext", [view.value.heading[0], view.value.heading[1]].filter(Boolean).join(", "));
  setText(find("reached"), `${view.step} / ${run.steps} · ${(ends()[view.step] / 1000).toFixed(2)} s`);
}

// Keys that move over the steps, wherever they are pressed but in a field.
const MOVES = {
  ArrowRight: () => view.step + 1,
  ArrowLeft: () => view.step - 1,
  PageDown: () => view.step + 1,
  PageUp: () => view.step - 1,
  Home: () => 0,
  End: () => run.steps,
};

// The cell that up, down and Enter are about: in the newest column of the step shown.
function newestColumn() {
  const { batch, start, promptStart } = drawn.places.findLast((p) => p.batch.times.length) ?? drawn.places[0];
  return Math.max(promptStart, start + batch.times.length - 1);
}

picture.addEventListener("keydown", (event) => {
  const turn = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!over() || !run.steps || event.target !== picture || !(turn || event.key === "Enter")) return;
  event.preventDefault();
  const slot = hovered ? hovered.slot + (turn ?? 0) : 0;
  const cell = { slot: Math.max(0, Math.min(slot, view.slots - 1)), column: newestColumn() };
  if (turn) hoverAt(cell);
  else pin(cell);
});

document.addEventListener("keydown", (event) => {
  if (!inSight() || !over() || event.ctrlKey || event.metaKey || event.altKey) return;
  const idle = event.target === document.body || event.target === picture || presenting();
  if (!idle || event.target.closest?.("input, textarea, select, summary, [role=dialog]")) return;
  if (event.key in MOVES) moveTo(MOVES[event.key]());
  else if (event.key === " " && !event.target.closest?.("button")) togglePlaying();
  else return;
  event.preventDefault();
});

play.addEventListener("click", togglePlaying);
cursor.addEventListener("input", () => moveTo(Number(cursor.value)));
for (const button of element.querySelectorAll(".bs-axis button")) {
  button.addEventListener("click", () => {
    axis = button.dataset.axis;
    zoom = hovered = null;
    for (const other of element.querySelectorAll(".bs-axis button")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    closeAbout();
    drawPicture();
  });
}
