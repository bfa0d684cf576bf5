// Runs come in as files and leave as files. The server reads and writes them; it keeps nothing:
// the record travels with the question.

const fileInput = find("file");
const drop = find("drop");
const online = typeof server !== "undefined"; // not in a page that was exported
const opens = online && !fixed.watching; // what is watched shows nothing else
let asked = null; // the newest question for a run to show
const UNDER_WAY = "A run is under way: stop it, or wait for its end.";

function say(text) {
  setText(find("said"), text);
  setText(find("summary"), text);
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

function download(blob, name) {
  saveAs(blob, name);
  setText(find("said"), `${name} was saved.`);
}

function drawMenus() {
  for (const menu of [find("open"), find("export")]) {
    if (menu.inert === over()) menu.inert = !over();
    if (!over() && menu.open) menu.open = false;
  }
  if (fixed.watching) find("files").hidden = !run.value.record;
}

find("files").hidden = !online;
find("open").hidden = !opens;
if (online) {
  fillMenu(
    find("export"),
    fixed.exports.map(({ label, note, ...what }) => ({ label, note, act: () => exportAs(what) })),
  );
}
if (opens) {
  fillMenu(find("open"), [
    ...fixed.recorded_runs.map(({ name, label }) => ({
      label,
      note: "recorded",
      act: () => openWith(server.recorded_run({ name })),
    })),
    { label: "A saved run…", note: "JSON", act: () => fileInput.click() },
    { label: "These prompts in the form", note: "to run again", act: fillForm },
  ]);
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
