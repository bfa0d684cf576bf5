// The caption names the model; the button switches the theme that Gradio set on the body.
const caption = find("caption");

function show() {
  caption.textContent = props.value.caption;
  caption.hidden = !props.value.caption;
}

find("theme").addEventListener("click", () => {
  document.body.classList.toggle("dark");
});
watch("value", show);
show();
