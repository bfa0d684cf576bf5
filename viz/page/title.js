// The caption names the model; the button switches the theme that Gradio set on the body.
const caption = element.querySelector(".bs-caption");

function show() {
  caption.textContent = props.value.caption;
  caption.hidden = !props.value.caption;
}

element.querySelector(".bs-theme").addEventListener("click", () => {
  document.body.classList.toggle("dark");
});
watch("value", show);
show();
