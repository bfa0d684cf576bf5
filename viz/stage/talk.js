// Presenter mode: only the picture, the tiles and the texts, as large as a slide wants them.

const presentButton = find("present");

function setPresenting(on) {
  stage.classList.toggle("bs-presenting", on);
  document.documentElement.classList.toggle("bs-slide", on); // :has() would be slow: texts grow all the time
  presentButton.setAttribute("aria-pressed", String(on));
  setText(presentButton, on ? "Leave (Esc)" : "Present");
  closeAbout();
  show(view.step);
  (on ? stage : presentButton).focus({ preventScroll: true }); // the controls hide without it
}

presentButton.addEventListener("click", () => setPresenting(!presenting()));
onDocument("keydown", (event) => {
  if (!inSight() || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input:not([type=range]), textarea, select")) return;
  if (event.key.toLowerCase() === "p") setPresenting(!presenting());
  else if (event.key === "Escape" && presenting()) setPresenting(false);
});
