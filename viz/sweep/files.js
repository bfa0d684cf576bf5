// Sweeps come in as files and leave as files. The server reads them and keeps nothing.

const fileInput = find("sweep-file");

function say(text) {
  setText(find("sweep-said"), text);
  setText(find("sweep-remark"), text);
}

async function openFile(file) {
  if (!file) return;
  if (props.value.busy) return say("A sweep is under way: stop it, or wait for its end.");
  if (file.size > props.max_bytes) return say(`${file.name} is larger than ${props.max_bytes / 2 ** 20} MiB.`);
  const found = await answer(server.open_sweep({ record: await file.text() }));
  if (found.error) return say(found.error);
  if (!props.value.busy) show({ ...found.shown, opened: true });
}

function save() {
  saveAs(new Blob([shown.record], { type: "application/json" }), shown.file);
  setText(find("sweep-said"), `${shown.file} was saved.`);
}

find("sweep-save").addEventListener("click", save);
find("sweep-open").addEventListener("click", () => fileInput.click());
takesFiles(fileInput, sweep, openFile);
