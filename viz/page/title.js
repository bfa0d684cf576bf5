// Switches the theme that Gradio set on the body.
find("theme").addEventListener("click", () => {
  document.body.classList.toggle("dark");
});
