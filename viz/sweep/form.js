// What is to be measured. The fields are the truth; nothing is checked here that the server checks.

const form = find("sweep-form");
const chips = find("sweep-chips");

function makeChip(size) {
  const chip = make("label", "bs-sweep-chip");
  const box = Object.assign(make("input"), { type: "checkbox", value: size, checked: props.chosen.includes(size) });
  chip.append(box, make("span", "", String(size)));
  return chip;
}

// A number where it is one, else what was typed: the server says what is wrong with it.
function readNumber(input) {
  if (input.validity.badInput) return "not a number";
  return input.value === "" ? null : Number(input.value);
}

function readOrder() {
  return {
    batch_sizes: [...chips.querySelectorAll("input:checked")].map((box) => Number(box.value)),
    prompt: find("sweep-prompt").value,
    max_new_tokens: readNumber(find("sweep-tokens")),
    runs: readNumber(find("sweep-runs")),
    model: find("sweep-model").value,
  };
}

function fillIn() {
  chips.replaceChildren(...props.offered.map(makeChip));
  find("sweep-prompt").value = props.prompt;
  find("sweep-tokens").value = props.max_new_tokens;
  find("sweep-runs").value = props.runs;
  find("sweep-model").replaceChildren(...props.models.map((name) => make("option", "", name)));
  find("sweep-model-line").hidden = props.models.length < 2;
}

function drawForm({ notice, busy }) {
  const line = find("sweep-notice");
  line.setAttribute("role", notice.kind === "error" ? "alert" : "status");
  line.dataset.kind = notice.kind;
  setText(line, notice.text);
  setText(find("sweep-measure"), busy ? "Measuring…" : "Measure");
  find("sweep-measure").disabled = busy;
  find("sweep-stop").disabled = !busy;
}

function measure() {
  if (!props.value.busy) trigger("measure", readOrder());
}

find("sweep-measure").addEventListener("click", measure);
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) measure();
});
find("sweep-stop").addEventListener("click", () => trigger("halt"));
fillIn();
