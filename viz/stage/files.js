// Runs come in as files and leave as files. The server reads and writes them; it keeps nothing:
// the record travels with the question.

const fileInput = find("file");
const drop = find("drop");
const online = typeof server !== "undefined"; // not in a page that was exported
let asked = null; // the newest question for a run to show
const UNDER_WAY = "A run is under way: stop it, or wait for its end.";

function say(text) {
  setText(find("said"), text);
  setText(find("summary"), text);
}

// What the server answers. Gradio answers with nothing where the server failed or is gone.
async function answer(question) {
  return (await question) ?? { error: "The server did not answer." };
}

async function openWith(question) {
  asked = question;
  const { state, error } = await answer(question);
  if (asked !== question) return; // another was asked for meanwhile
  if (error) return say(error);
  if (!over()) return say(UNDER_WAY);
  present({ ...state, opened: true });
  picture.focus({ preventScroll: true });
  if (state.recorded && !still) startPlaying();
}

// The list of prompts, where there is one beside the stage, says which files it takes.
function isPrompts({ name }) {
  const suffixes = document.querySelector(".bs-prompt-file")?.accept.split(",") ?? [];
  return suffixes.some((suffix) => name.toLowerCase().endsWith(suffix));
}

async function openFile(file) {
  if (!file) return;
  if (isPrompts(file)) return say(`${file.name} is a file of prompts: drop it on the list of prompts.`);
  if (!over()) return say(UNDER_WAY);
  if (file.size > fixed.max_bytes) return say(`${file.name} is larger than ${fixed.max_bytes / 2 ** 20} MiB.`);
  await openWith(server.open_run({ record: await file.text() }));
}

// Hands the prompts and settings of the run that is shown to the form beside it.
function fillForm() {
  const { requests, settings, model } = JSON.parse(run.value.record);
  const [first] = requests;
  const order = {
    prompts: requests.map((request) => request.prompt),
    max_new_tokens: requests.map((request) => request.max_new_tokens),
    model: model.name,
    batch_size: settings.batch_size,
    chat_template: settings.chat_template,
    ignore_eos: first.ignore_eos,
    min_new_tokens: first.min_new_tokens,
    stop: first.stop,
    ...first.sampling,
    seed: first.seed,
    padding_side: settings.padding_side,
  };
  document.querySelector(".bs-editor").dispatchEvent(new CustomEvent("fill-in", { detail: order }));
}

async function exportAs({ format, scale, suffix }) {
  if (!over()) return say(UNDER_WAY);
  const theme = document.body.classList.contains("dark") ? "dark" : "light";
  const { record, recorded } = run.value;
  const question = { record, format, theme, recorded, step: view.step };
  const { name, type, text, error } = await answer(server.export_run(question));
  if (error) return say(error);
  const blob = new Blob([text], { type });
  if (scale) return download(await rasterise(blob, scale), name.replace(/\.svg$/, suffix));
  return download(blob, name);
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
  setText(find("said"), `${name} was saved.`);
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

function drawMenus() {
  for (const menu of [find("open"), find("export")]) {
    if (menu.inert === over()) menu.inert = !over();
    if (!over() && menu.open) menu.open = false;
  }
}

find("files").hidden = !online;
if (online) {
  fillMenu(find("open"), [
    ...fixed.recorded_runs.map(({ name, label }) => ({
      label,
      note: "recorded",
      act: () => openWith(server.recorded_run({ name })),
    })),
    { label: "A saved run…", note: "JSON", act: () => fileInput.click() },
    { label: "These prompts in the form", note: "to run again", act: fillForm },
  ]);
  fillMenu(
    find("export"),
    fixed.exports.map(({ label, note, ...what }) => ({ label, note, act: () => exportAs(what) })),
  );
  fileInput.addEventListener("change", () => {
    openFile(fileInput.files[0]);
    fileInput.value = "";
  });
  onDocument("dragover", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    drop.hidden = !inSight();
  });
  onDocument("dragleave", (event) => {
    if (!event.relatedTarget) drop.hidden = true;
  });
  onDocument("drop", (event) => {
    drop.hidden = true;
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault(); // or the browser would leave the page for the file
    if (inSight()) openFile(event.dataTransfer.files[0]);
  });
}
