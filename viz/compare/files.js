// Comparisons come in as files and leave as files. The server reads and writes them; it keeps
// nothing: the record travels with the question.

const fileInput = find("compare-file");
const exportMenu = find("compare-export");

function say(text) {
  setText(find("compare-said"), text);
  setText(find("compare-remark"), text);
}

async function openFile(file) {
  if (!file) return;
  if (props.value.busy) return say("A comparison is under way: stop it, or wait for its end.");
  if (file.size > props.max_bytes) return say(`${file.name} is larger than ${props.max_bytes / 2 ** 20} MiB.`);
  const found = await answer(server.open_comparison({ record: await file.text() }));
  if (found.error) return say(found.error);
  if (!props.value.busy) show({ ...found.shown, opened: true });
}

async function exportAs({ format, scale, suffix }) {
  const theme = document.body.classList.contains("dark") ? "dark" : "light";
  const { record, recorded } = shown;
  const settings = computed ? { slots: computed.slots, order: computed.order } : {};
  const found = await answer(server.export_comparison({ record, recorded, format, theme, ...settings }));
  if (found.error) return say(found.error);
  const blob = new Blob([found.text], { type: found.type });
  if (scale) return download(await rasterise(blob, scale), found.name.replace(/\.svg$/, suffix));
  return download(blob, found.name);
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

function download(blob, name) {
  const link = Object.assign(make("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  setText(find("compare-said"), `${name} was saved.`);
}

function closeMenu() {
  exportMenu.open = false;
  exportMenu.querySelector("summary").focus();
}

function drawFiles() {
  exportMenu.inert = shown.status === "running" || !shown.file;
  if (exportMenu.inert) exportMenu.open = false;
}

exportMenu.querySelector("ul").replaceChildren(
  ...props.exports.map(({ label, note, ...what }) => {
    const button = Object.assign(make("button", "", label), { type: "button" });
    button.append(make("span", "bs-compare-menu-note", note));
    button.addEventListener("click", () => {
      closeMenu();
      exportAs(what);
    });
    const item = make("li");
    item.append(button);
    return item;
  }),
);
exportMenu.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !exportMenu.open) return;
  event.preventDefault();
  closeMenu();
});
onDocument("pointerdown", (event) => {
  if (!exportMenu.contains(event.target)) exportMenu.open = false;
});
find("compare-open").addEventListener("click", () => fileInput.click());
fileInput.addEventListener("change", () => {
  openFile(fileInput.files[0]);
  fileInput.value = "";
});
onDocument("dragover", (event) => {
  if (event.dataTransfer?.types.includes("Files") && compare.checkVisibility()) event.preventDefault();
});
onDocument("drop", (event) => {
  if (!event.dataTransfer?.files.length || !compare.checkVisibility()) return;
  event.preventDefault(); // or the browser would leave the page for the file
  openFile(event.dataTransfer.files[0]);
});
