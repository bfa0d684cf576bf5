// Runs come in as files and leave as files. The server reads and writes them; it keeps nothing:
// the record travels with the request.

const SLIDE = { width: 1920, height: 1080 };
const fileInput = find("file");
const drop = find("drop");
const online = typeof server !== "undefined"; // not in a page that was exported

function say(text) {
  setText(find("said"), text);
  setText(find("summary"), text);
}

async function openWith(answer) {
  const { state, error } = await answer;
  if (error) return say(error);
  present(state);
  picture.focus();
  if (state.recorded && !still) startPlaying();
}

async function openFile(file) {
  if (!file || !canOpen()) return;
  if (file.size > props.max_bytes) return say(`${file.name} is larger than ${props.max_bytes / 2 ** 20} MiB.`);
  await openWith(server.open_run({ record: await file.text() }));
}

const canOpen = () => online && run?.value.status !== "running";

async function exportAs({ format, scale }) {
  const theme = document.body.classList.contains("dark") ? "dark" : "light";
  const { record, recorded } = run.value;
  const { name, type, text, error } = await server.export_run({
    record,
    format,
    theme,
    recorded: Boolean(recorded),
    step: view.step,
  });
  if (error) return say(error);
  const blob = new Blob([text], { type });
  if (scale) return download(await rasterise(blob, scale), name.replace(/svg$/, "png"));
  return download(blob, name);
}

// The slide as this browser draws it: no other is needed.
async function rasterise(svg, scale) {
  const image = new Image();
  const url = URL.createObjectURL(svg);
  image.src = url;
  await image.decode();
  const canvas = Object.assign(make("canvas"), { width: scale * SLIDE.width, height: scale * SLIDE.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function download(blob, name) {
  const link = Object.assign(make("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  setText(find("said"), `${name} was saved.`);
}

function fillMenu(menu, entries) {
  menu.querySelector("ul").replaceChildren(
    ...entries.map(({ label, note, act }) => {
      const button = Object.assign(make("button", "", label), { type: "button" });
      if (note) button.append(make("span", "bs-menu-note", note));
      button.addEventListener("click", () => {
        menu.open = false;
        menu.querySelector("summary").focus();
        act();
      });
      const item = make("li");
      item.append(button);
      return item;
    }),
  );
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("pointerdown", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
}

find("files").hidden = !online;
if (online) {
  fillMenu(find("open"), [
    ...props.recorded_runs.map(({ name, label }) => ({
      label,
      note: "recorded",
      act: () => openWith(server.recorded_run({ name })),
    })),
    { label: "A saved run…", note: "JSON", act: () => fileInput.click() },
  ]);
  fillMenu(
    find("export"),
    props.exports.map(({ label, note, ...what }) => ({ label, note, act: () => exportAs(what) })),
  );
  fileInput.addEventListener("change", () => {
    openFile(fileInput.files[0]);
    fileInput.value = "";
  });
  document.addEventListener("dragover", (event) => {
    if (!event.dataTransfer?.types.includes("Files") || !canOpen()) return;
    event.preventDefault();
    drop.hidden = false;
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) drop.hidden = true;
  });
  document.addEventListener("drop", (event) => {
    drop.hidden = true;
    if (!event.dataTransfer?.files.length || !canOpen()) return;
    event.preventDefault();
    openFile(event.dataTransfer.files[0]);
  });
}
