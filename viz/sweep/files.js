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
  // Gradio answers with nothing where the server failed or is gone.
  const answer = (await server.open_sweep({ record: await file.text() })) ?? { error: "The server did not answer." };
  if (answer.error) return say(answer.error);
  if (!props.value.busy) show({ ...answer.shown, opened: true });
}

function save() {
  const blob = new Blob([shown.record], { type: "application/json" });
  const link = Object.assign(make("a"), { href: URL.createObjectURL(blob), download: shown.file });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  setText(find("sweep-said"), `${shown.file} was saved.`);
}

find("sweep-save").addEventListener("click", save);
find("sweep-open").addEventListener("click", () => fileInput.click());
fileInput.addEventListener("change", () => {
  openFile(fileInput.files[0]);
  fileInput.value = "";
});
onDocument("dragover", (event) => {
  if (event.dataTransfer?.types.includes("Files") && sweep.checkVisibility()) event.preventDefault();
});
onDocument("drop", (event) => {
  if (!event.dataTransfer?.files.length || !sweep.checkVisibility()) return;
  event.preventDefault(); // or the browser would leave the page for the file
  openFile(event.dataTransfer.files[0]);
});
