// The prompt list. props.value is [{prompt, max_new_tokens}]; the fields are the truth while typing.

const list = find("rows");
const box = find("paste-box");
const pasted = box.querySelector("textarea");
const KEPT = "batchscope-prompts"; // outlives a reload of this tab, and nothing else

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
watch("value", () => {
  show(props.value);
  keep(KEPT, JSON.stringify(props.value));
});
new ResizeObserver(() => list.querySelectorAll("textarea").forEach(fit)).observe(list);
show(props.value);
const before = kept(KEPT);
if (before) {
  // Not before Gradio has mounted the component: it would put its own first value back.
  setTimeout(() => {
    show(JSON.parse(before));
    publish();
    trigger("replaced");
  });
}
