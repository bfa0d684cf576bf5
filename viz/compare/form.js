// What is to be measured: the example, or what the form of the Run tab holds, which Gradio sends along.

function chosenSource() {
  return compare.querySelector('input[name="bs-compare-source"]:checked').value;
}

function drawForm({ notice, busy }) {
  const line = find("compare-notice");
  line.setAttribute("role", notice.kind === "error" ? "alert" : "status");
  line.dataset.kind = notice.kind;
  setText(line, notice.text);
  setText(find("compare-measure"), busy ? "Comparing…" : "Compare");
  find("compare-measure").disabled = busy;
  find("compare-stop").disabled = !busy;
}

setText(find("compare-example"), props.example);
find("compare-measure").addEventListener("click", () => {
  if (!props.value.busy) trigger("measure", { source: chosenSource() });
});
find("compare-stop").addEventListener("click", () => trigger("halt"));
