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

function download(blob, name) {
  saveAs(blob, name);
  setText(find("compare-said"), `${name} was saved.`);
}

function drawFiles() {
  exportMenu.inert = shown.status === "running" || !shown.file;
  if (exportMenu.inert) exportMenu.open = false;
}

fillMenu(
  exportMenu,
  props.exports.map(({ label, note, ...what }) => ({ label, note, act: () => exportAs(what) })),
);
find("compare-open").addEventListener("click", () => fileInput.click());
takesFiles(fileInput, compare, openFile);
