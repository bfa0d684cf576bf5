// One cursor over the steps of a run that is over: play, pause, speed, slider, keys.

const cursor = find("cursor");
const play = find("play");
const picture = find("picture");
const still = matchMedia("(prefers-reduced-motion: reduce)").matches; // nothing plays by itself
let playing = 0; // the animation frame that is asked for, or 0

// Milliseconds from the start of the run to the end of each step; 0 before the first.
function finishedAt() {
  return [0, ...run.batches.flatMap((batch) => batch.forwards.map(({ started, ms }) => started + ms))];
}

// Very long runs can be shown at every so manieth step only, and at their end.
function reachable(step) {
  if (step >= run.steps) return run.steps;
  return Math.max(0, step - (step % run.stride));
}

function moveTo(step) {
  pause();
  show(reachable(step));
}

function pause() {
  cancelAnimationFrame(playing);
  playing = 0;
  showPlaying();
}

// Plays from the cursor, or from the start when it is at the end; a step at its own recorded time.
function startPlaying() {
  if (!over() || !run.steps) return;
  const times = finishedAt();
  if (view.step === run.steps) show(0);
  let at = times[view.step];
  let before = performance.now();
  const frame = (now) => {
    at += (now - before) * Number(find("speed").value);
    before = now;
    let step = view.step;
    while (step < run.steps && times[step + 1] <= at) step += 1;
    if (reachable(step) !== view.step) show(reachable(step));
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
  setText(play, playing ? "❚❚" : "▶");
  play.setAttribute("aria-label", playing ? "Pause" : "Play");
}

function drawControls() {
  cursor.disabled = play.disabled = !over() || !run.steps;
  setAttribute(cursor, "step", run.stride);
  // In a run that grows it stands at the end: to move it there again costs more than it shows.
  setAttribute(cursor, "max", over() ? run.stride * Math.ceil(run.steps / run.stride) : run.stride);
  cursor.title = run.stride > 1 ? `One stop every ${run.stride} steps` : "";
  const value = view.last ? cursor.max : String(view.step);
  if (cursor.value !== value) cursor.value = value;
  cursor.setAttribute("aria-valuetext", view.value.heading.filter(Boolean).join(", "));
  setText(find("reached"), `${view.step} / ${run.steps} · ${(finishedAt()[view.step] / 1000).toFixed(2)} s`);
}

const ARROWS = {
  ArrowRight: () => view.step + run.stride,
  ArrowLeft: () => view.step - 1, // the last reachable before it: the end may be less than a stride away
};
// On the picture and on a slide; elsewhere these scroll the page.
const MOVES = {
  ...ARROWS,
  PageDown: ARROWS.ArrowRight,
  PageUp: ARROWS.ArrowLeft,
  Home: () => 0,
  End: () => run.steps,
};

onDocument("keydown", (event) => {
  if (!inSight() || !over() || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, textarea, select, summary, [role=dialog], [role=tab]")) return;
  const onPicture = event.target === picture || presenting();
  const moves = onPicture ? MOVES : event.target === document.body ? ARROWS : {};
  if (event.key in moves) moveTo(moves[event.key]());
  else if (event.key === " " && onPicture && !event.target.closest("button")) togglePlaying();
  else return;
  event.preventDefault();
});

// Up, down and Enter are about the newest column of the step that is shown.
picture.addEventListener("keydown", (event) => {
  const turn = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!over() || !run.steps || event.target !== picture || !(turn || event.key === "Enter")) return;
  event.preventDefault();
  const slot = hovered ? hovered.slot + (turn ?? 0) : 0;
  const { batch, start, promptStart } = drawn.places.findLast((p) => p.batch.times.length) ?? drawn.places[0];
  const newest = Math.max(promptStart, start + batch.times.length - 1);
  const cell = cellAt(Math.max(0, Math.min(slot, view.slots - 1)), newest);
  if (turn) hoverAt(cell);
  else pin(cell);
});

play.addEventListener("click", togglePlaying);
cursor.addEventListener("input", () => moveTo(Number(cursor.value)));
for (const button of element.querySelectorAll(".bs-axis button")) {
  button.addEventListener("click", () => {
    axis = button.dataset.axis;
    zoom = null;
    for (const other of element.querySelectorAll(".bs-axis button")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    closeAbout();
    drawPicture();
  });
}
