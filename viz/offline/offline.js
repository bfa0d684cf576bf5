// Runs the stage in a file of its own. `runStage` is the stage's script as a function of what the
// page gives it; here the value never changes and nobody listens, so there is little to give.

document.querySelector(".bs-theme").addEventListener("click", () => {
  document.body.classList.toggle("dark");
});

runStage(
  document.querySelector(".bs-file-main"),
  JSON.parse(document.getElementById("bs-props").textContent),
  () => {},
  () => {},
  undefined,
);
