// Requests that arrive over time: how many have their first token how long after their arrival.

const arrivalsChart = find("compare-arrivals-chart");
const arrivalFields = { per_second: find("compare-rate"), slots: find("compare-arrival-slots"), window: find("compare-window") };
const timesInput = find("compare-times");
const arrivals = newestOnly((question) => server.let_arrive(question), showArrivals);
let arrived = null;
let times = null; // the text of a file of arrival times

// What is empty is left to the server.
function askArrivals() {
  const typed = Object.entries(arrivalFields)
    .map(([name, input]) => [name, amount(input)])
    .filter(([, value]) => value !== null);
  arrivals.ask({ basis: shown.basis, times, ...Object.fromEntries(typed) });
}

function showArrivals(found, { basis }) {
  if (shown.basis !== basis) return; // another comparison is shown meanwhile
  setText(find("compare-arrivals-told"), found.error ?? found.told);
  if (found.error) return;
  arrived = found;
  for (const [name, input] of Object.entries(arrivalFields)) {
    if (document.activeElement !== input) input.value = found[name] ?? "";
  }
  const table = find("compare-arrivals");
  table.querySelector("thead tr").replaceChildren(...cells(found.columns, "th"));
  table.querySelector("tbody").replaceChildren(
    ...found.rows.map((texts) => {
      const row = make("tr");
      row.append(...cells(texts, "td"));
      return row;
    }),
  );
  setText(find("compare-arrivals-about"), found.about);
  drawArrivals();
}

function drawArrivals() {
  if (!arrived || !arrivalsChart.clientWidth) return;
  const [batches, refilled] = arrived.curves;
  const curve = (seconds, options) => ({
    type: "scatter",
    mode: "lines",
    x: [0, ...seconds],
    y: [0, ...arrived.shares],
    line: options,
  });
  drawSmall(
    arrivalsChart,
    [
      curve(batches, { color: colour("text"), width: 2.5, dash: "dash" }),
      curve(refilled, { color: colour("active"), width: 3 }),
    ],
    { title: "seconds from arrival to first token", range: [0, Math.max(...batches, ...refilled, 0.001)] },
    { title: "% of requests", range: [0, 104] },
  );
}

// Another comparison has other requests.
function startArrivals() {
  find("compare-arrivals").hidden = !shown.basis;
  if (!shown.basis) return;
  for (const input of Object.values(arrivalFields)) input.value = "";
  askArrivals();
}

async function readTimes(file) {
  if (!file) return;
  if (file.size > props.most_times_bytes) {
    return setText(find("compare-arrivals-told"), `${file.name} is larger than ${props.most_times_bytes / 2 ** 20} MiB.`);
  }
  times = await file.text();
  drawTimes();
  askArrivals();
}

function drawTimes() {
  arrivalFields.per_second.disabled = times !== null;
  setText(find("compare-times-open"), times === null ? "Times from a file" : "At random again");
}

for (const input of Object.values(arrivalFields)) input.addEventListener("input", askArrivals);
find("compare-times-open").addEventListener("click", () => {
  if (times === null) return timesInput.click();
  times = null;
  drawTimes();
  askArrivals();
});
timesInput.addEventListener("change", () => {
  readTimes(timesInput.files[0]);
  timesInput.value = "";
});
new ResizeObserver(drawArrivals).observe(arrivalsChart);
