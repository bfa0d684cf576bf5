// Gradio's first "Loading" counts its seconds with every frame of the browser, and goes on when it
// has gone: the page would be drawn 60 times a second for ever. So whoever alone asks for each of 30
// frames in a row, beside this, is not asked again.
const IN_A_ROW = 30;
let last = 0;
let alone = 0;

function look() {
  const own = requestAnimationFrame(look);
  alone = own - last === 2 ? alone + 1 : 0; // frames are numbered as they are asked for
  last = own;
  if (alone < IN_A_ROW) return;
  cancelAnimationFrame(own);
  cancelAnimationFrame(own - 1);
}

look();
