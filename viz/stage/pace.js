// When the next picture is drawn: with the browser's next frame, or later where pictures take long.
// The browser may share its cores with the engine, whose time it must not take.

const LONGEST_WAIT = 500; // milliseconds from one picture to the next, at most
const REST = 10; // so many times as long as a picture took goes by before the next one
let cost = 0; // milliseconds of a picture up to its paint, a mean of the last few
let lastDrawn = 0;
let timer = 0;
let frame = 0;

// Calls `draw` soon, once for however often it was asked for; `now` does not wait.
function draws(draw, { now }) {
  if (frame || (timer && !now)) return;
  clearTimeout(timer);
  const rest = lastDrawn + Math.min(LONGEST_WAIT, REST * cost) - performance.now();
  if (now || rest <= 0) inFrame(draw);
  else timer = setTimeout(inFrame, rest, draw);
}

function inFrame(draw) {
  timer = 0;
  frame = requestAnimationFrame(() => {
    frame = 0;
    const start = performance.now();
    draw();
    // A task that is queued now runs when the browser has laid out and painted.
    setTimeout(() => {
      lastDrawn = performance.now();
      cost += (lastDrawn - start - cost) / 4;
    });
  });
}
