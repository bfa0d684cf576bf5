// Gradio's first "Loading" counts its seconds with every frame of the browser, and goes on when it
// has gone: the page would be drawn 60 times a second for ever. So whoever alone asked for 30 frames
// with none left out, beside this and now and then a picture, is not asked again, unless a run is
// played.
const ENOUGH = 30;
const NOBODY = 300;
let last = 0;
let alone = 0;
let nobody = 0;

const plays = () => document.querySelector('.bs-play[aria-label="Pause"]') !== null;

function look() {
  const own = requestAnimationFrame(look);
  const others = own - last - 1; // frames are numbered as they are asked for
  last = own;
  nobody = others ? 0 : nobody + 1;
  if (others === 1 && !plays()) alone += 1;
  else if (others < 2) alone = 0;
  if (alone < ENOUGH && nobody < NOBODY) return;
  cancelAnimationFrame(own);
  if (alone) cancelAnimationFrame(own - 1);
}

look();
