// When the next picture is drawn: with the browser's next frame, or later where pictures take long.
// The browser may share its cores with the engine, whose time it must not take.

const LONGEST_REST = 500; // milliseconds
const REST = 3; // so many times as long as a picture took here goes by: other threads take as much again
const PATIENCE = 150; // milliseconds without a newer state, after which the last one is drawn
let took = [0, 0]; // milliseconds of the last two pictures, up to their paint
let lastDrawn = 0;
let timer = 0;
let frame = 0;

// Calls `draw` with the next frame, `now` or if there was rest enough; else it is left to the newer
// state that will come, which is then new, or done when none has come. `wait` is for a state that
// will soon be old.
function draws(draw, { now, wait = 0 }) {
  if (frame) return;
  clearTimeout(timer);
  if (wait) {
    timer = setTimeout(inFrame, wait, draw);
    return;
  }
  const cost = Math.min(...took); // one slow picture, such as a run's first, is no habit
  const rest = lastDrawn + Math.min(LONGEST_REST, REST * cost) - performance.now();
  if (now || rest <= 0) inFrame(draw);
  else timer = setTimeout(inFrame, Math.max(rest, PATIENCE), draw);
}

function inFrame(draw) {
  frame = requestAnimationFrame(() => {
    frame = 0;
    const start = performance.now();
    draw();
    // A task that is queued now runs when the browser has laid out and painted.
    setTimeout(() => {
      lastDrawn = performance.now();
      took = [lastDrawn - start, took[0]];
    });
  });
}
