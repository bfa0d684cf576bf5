// Shows props.value.text as text.
const line = find("notice");

function show() {
  const { text, kind } = props.value;
  line.setAttribute("role", kind === "error" ? "alert" : props.quiet ? "none" : "status");
  line.dataset.kind = kind;
  line.textContent = text;
}

watch("value", show);
show();
