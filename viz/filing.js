// Files that come in and leave, for whoever takes or makes some. The server reads and writes them.

// What the server answers. Gradio answers with nothing where the server failed or is gone.
async function answer(question) {
  return (await question) ?? { error: "The server did not answer." };
}

// The slide as this browser draws it: no other is needed.
async function rasterise(svg, scale) {
  const image = new Image();
  const url = URL.createObjectURL(svg);
  image.src = url;
  await image.decode();
  const [width, height] = [scale * image.naturalWidth, scale * image.naturalHeight];
  const canvas = Object.assign(make("canvas"), { width, height });
  canvas.getContext("2d").drawImage(image, 0, 0, width, height);
  URL.revokeObjectURL(url);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function saveAs(blob, name) {
  const link = Object.assign(make("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function fillMenu(menu, entries) {
  const close = () => {
    menu.open = false;
    menu.querySelector("summary").focus();
  };
  menu.querySelector("ul").replaceChildren(
    ...entries.map(({ label, note, act }) => {
      const button = Object.assign(make("button", "", label), { type: "button" });
      button.append(make("span", "bs-menu-note", note));
      button.addEventListener("click", () => {
        close();
        act();
      });
      const item = make("li");
      item.append(button);
      return item;
    }),
  );
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.preventDefault();
    close();
  });
  onDocument("pointerdown", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
}

// Files that are chosen in an input, or dropped on the page while `place` can be seen.
function takesFiles(input, place, open) {
  input.addEventListener("change", () => {
    open(input.files[0]);
    input.value = "";
  });
  onDocument("dragover", (event) => {
    if (event.dataTransfer?.types.includes("Files") && place.checkVisibility()) event.preventDefault();
  });
  onDocument("drop", (event) => {
    if (!event.dataTransfer?.files.length || !place.checkVisibility()) return;
    event.preventDefault(); // or the browser would leave the page for the file
    open(event.dataTransfer.files[0]);
  });
}
