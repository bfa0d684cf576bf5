// Shows props.value.text as text; an error is announced at once.
const line = find("notice");

function show() {
  const { text, kind } = props.value;
  line.setAttribute("role", kind === "error" ? "alert" : "status");
  line.dataset.kind = kind;
  line.textContent = text;
}

watch("value", show);
show();
