// A chapter's button: the value becomes the key of its preset, then "chosen" fires.
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-preset]");
  if (!button) return;
  props.value = button.dataset.preset;
  trigger("chosen");
});
