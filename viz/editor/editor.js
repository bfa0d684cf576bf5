// The prompt list. props.value is [{prompt, max_new_tokens}]; the fields are the truth while typing.

const list = find("rows");
const box = find("paste-box");
const pasted = box.querySelector("textarea");
const KEPT = "batchscope-prompts"; // outlives a reload of this tab, and nothing else
const KEPT_SETTINGS = "batchscope-settings"; // as the text of a link
const LINK = "#run="; // prompts stand behind the #, which browsers keep from servers and their logs
const editor = find("editor");
const fileInput = find("prompt-file");
const PAUSE = 400; // ms without a change, until the server hears of it
let pause;
let asked; // the newest file

function fit(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 12}px`; // the style sheet caps it
}

function publish() {
  const value = [...list.children].map((row) => ({
    prompt: row.querySelector("textarea").value,
    max_new_tokens: readBudget(row.querySelector("input")),
  }));
  props.value = value;
  keep(KEPT, JSON.stringify(value));
  silence();
  tellSoon();
}

function tellSoon() {
  clearTimeout(pause);
  pause = setTimeout(() => element.isConnected && trigger("changed"), PAUSE);
}

// A number where it is one, else what was typed: the server says what is wrong with it.
function readBudget(input) {
  if (input.validity.badInput) return "not a number";
  return input.value === "" ? null : Number(input.value);
}

function renumber() {
  [...list.children].forEach((row, index) => {
    row.querySelector(".bs-row-number").textContent = String(index + 1);
    row.querySelector("textarea").setAttribute("aria-label", `Prompt ${index + 1}`);
    row.querySelector("input").setAttribute("aria-label", `Token budget of prompt ${index + 1}`);
    row.querySelector("button").setAttribute("aria-label", `Remove prompt ${index + 1}`);
  });
}

function addRow({ prompt, max_new_tokens }) {
  const row = make("li", "bs-row");
  const number = make("span", "bs-row-number");
  const area = Object.assign(make("textarea"), { rows: 1, dir: "auto", spellcheck: false });
  const budget = Object.assign(make("input"), { type: "number", min: 1, step: 1 });
  const remove = Object.assign(make("button", "bs-remove", "×"), { type: "button" });
  number.ariaHidden = "true";
  budget.title = "token budget";
  remove.title = "remove";
  area.value = prompt;
  budget.value = max_new_tokens ?? "";
  row.append(number, area, budget, remove);
  list.append(row);
  return row;
}

function show(value) {
  list.replaceChildren();
  value.forEach(addRow);
  renumber();
  list.querySelectorAll("textarea").forEach(fit);
}

function lastBudget() {
  const input = list.lastElementChild?.querySelector("input");
  return (input && readBudget(input)) || props.default_budget;
}

function pastePrompts(replace) {
  const budget = lastBudget();
  const prompts = pasted.value.split(/\r?\n/).filter((line) => line.trim());
  if (prompts.length === 0) return;
  if (replace) list.replaceChildren();
  const rows = prompts.map((prompt) => addRow({ prompt, max_new_tokens: budget }));
  renumber();
  list.querySelectorAll("textarea").forEach(fit);
  pasted.value = "";
  togglePaste(false);
  publish();
  if (replace) trigger("replaced");
  rows[0].querySelector("textarea").focus();
}

function togglePaste(open) {
  box.hidden = !open;
  find("paste").setAttribute("aria-expanded", String(open));
  if (open) pasted.focus();
}

function say(text, kind = "info") {
  const line = find("editor-said");
  line.setAttribute("role", kind === "error" ? "alert" : "status");
  line.dataset.kind = kind;
  line.textContent = text;
}

// What was said of a link holds until the list changes.
function silence() {
  say("");
  find("link").hidden = true;
}

function base64(bytes) {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

// base64url of the order as JSON in UTF-8, as engine/orders.py reads it.
function linkText(order) {
  const text = base64(new TextEncoder().encode(JSON.stringify(order)));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function copyLink(order) {
  const field = find("link");
  silence();
  // Without location.search: a private Space keeps the visitor's own key there.
  field.value = `${location.origin}${location.pathname}${LINK}${linkText(order)}`;
  try {
    await navigator.clipboard.writeText(field.value);
    say("Link copied, with these prompts and settings.");
  } catch (error) {
    console.debug(error);
    field.hidden = false;
    field.select();
    say("Copying was refused: copy the link by hand.");
  }
}

// The text of a link, once: taken out of the address, a reload keeps what was edited since.
function takeLink() {
  if (!location.hash.startsWith(LINK)) return null;
  const text = location.hash.slice(LINK.length);
  history.replaceState(history.state, "", location.pathname + location.search);
  return text;
}

async function openLink(link) {
  if (link === null) return;
  const answer = await server.open_link({ link });
  if (!answer) {
    history.replaceState(history.state, "", location.pathname + location.search + LINK + link);
    return say("The server did not answer: reload to open the link.", "error");
  }
  const { prompts, text, kind } = answer;
  if (prompts) {
    show(prompts);
    publish();
    trigger("linked", { link });
  }
  say(text, kind);
}

// The server reads the file, and says in its own words if it is too large or no file of prompts.
async function openFile(file) {
  if (!file) return;
  asked = file;
  const answer = await readFile(file);
  if (asked !== file) return; // another was asked for meanwhile
  const { prompts, text, kind } = answer;
  if (prompts) {
    // Not the last row's: the same file makes the same run, whatever stood in the list before.
    const budget = props.default_budget;
    show(prompts.map((row) => ({ ...row, max_new_tokens: row.max_new_tokens ?? budget })));
    togglePaste(false);
    publish();
    trigger("replaced");
    list.querySelector("textarea").focus();
  }
  say(text, kind);
}

async function readFile(file) {
  try {
    const start = await file.slice(0, props.largest_file + 1).arrayBuffer();
    const content = base64(new Uint8Array(start));
    const answer = await server.open_prompts({ name: file.name, content });
    return answer ?? { text: "The server did not answer: try the file again.", kind: "error" };
  } catch (error) {
    console.debug(error);
    return { text: "The file can't be read: is it a folder, or gone?", kind: "error" };
  }
}

// A file that is over the list is meant for it; the stage takes those over the rest of the page.
function onFiles(type, handler) {
  editor.addEventListener(type, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    event.stopPropagation();
    handler(event);
  });
}

list.addEventListener("input", (event) => {
  if (event.target.tagName === "TEXTAREA") fit(event.target);
  publish();
});
list.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    publish();
    trigger("submit");
  }
});
list.addEventListener("click", (event) => {
  const button = event.target.closest(".bs-remove");
  if (!button) return;
  const row = button.closest("li");
  const next = row.nextElementSibling ?? row.previousElementSibling;
  row.remove();
  renumber();
  publish();
  (next?.querySelector("textarea") ?? find("add")).focus();
});
find("add").addEventListener("click", () => {
  const row = addRow({ prompt: "", max_new_tokens: lastBudget() });
  renumber();
  publish();
  fit(row.querySelector("textarea"));
  row.querySelector("textarea").focus();
});
find("paste").addEventListener("click", () => togglePaste(box.hidden));
find("paste-add").addEventListener("click", () => pastePrompts(false));
find("paste-replace").addEventListener("click", () => pastePrompts(true));
fileInput.accept = props.file_types.join();
pasted.placeholder = `One prompt per line, or drop a file here: ${props.file_types.join(", ")}`;
find("from-file").addEventListener("click", () => fileInput.click());
fileInput.addEventListener("change", () => {
  openFile(fileInput.files[0]);
  fileInput.value = "";
});
onFiles("dragenter", () => document.dispatchEvent(new DragEvent("dragleave")));
onFiles("dragover", () => editor.classList.add("bs-dropping"));
onFiles("dragleave", (event) => {
  if (!editor.contains(event.relatedTarget)) editor.classList.remove("bs-dropping");
});
onFiles("drop", (event) => {
  editor.classList.remove("bs-dropping");
  openFile(event.dataTransfer.files[0]);
});
find("copy-link").addEventListener("click", () => trigger("wants_link"));
editor.addEventListener("copy-order", (event) => copyLink(event.detail));
editor.addEventListener("fill-in", (event) => openLink(linkText(event.detail)));
editor.addEventListener("keep-order", (event) => {
  keep(KEPT_SETTINGS, linkText(event.detail));
  tellSoon();
});
addEventListener("hashchange", function follow() {
  if (element.isConnected) openLink(takeLink());
  else removeEventListener("hashchange", follow); // another page has taken this one's place
});
watch("value", () => {
  show(props.value);
  keep(KEPT, JSON.stringify(props.value));
  silence();
  tellSoon();
});
new ResizeObserver(() => list.querySelectorAll("textarea").forEach(fit)).observe(list);
show(props.value);
const linked = takeLink();
const before = kept(KEPT);
const settings = kept(KEPT_SETTINGS);
// Not before Gradio has mounted the component: it would put its own first value back.
setTimeout(() => {
  if (linked !== null) openLink(linked);
  else if (before) {
    show(JSON.parse(before));
    publish();
    if (settings) trigger("linked", { link: settings });
    else trigger("replaced");
  }
});
