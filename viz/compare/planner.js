// Which batch size: throughput against batch size, and where the three limits cut it off.

const planChart = find("compare-plan-chart");
const planKind = find("compare-plan-kind");
const LIMIT_DASHES = { memory: "solid", latency: "dash", saturation: "dot" };
const plans = newestOnly((question) => server.plan_batch(question), showPlan);
let plan = null;
let planFor = null; // the sweep that the plan is made of

const sweepRecord = () => document.querySelector(".bs-sweep")?.batchscope?.record || null;

// A field that is empty is no limit; the server says what is wrong with the others.
function amount(input) {
  if (input.validity.badInput) return "not a number";
  return input.value === "" ? null : Number(input.value);
}

function askPlan(limits) {
  planFor = sweepRecord();
  plans.ask({ sweep: planFor, kind: planKind.value, ...limits });
}

const askPlanAsTyped = () =>
  askPlan({ limit: amount(find("compare-plan-limit")), memory: amount(find("compare-plan-memory")) });

function showPlan(found) {
  setText(find("compare-plan-told"), found.error ?? found.told);
  if (found.error) return;
  plan = found;
  for (const [name, value] of [["limit", plan.limit], ["memory", plan.memory]]) {
    const input = find(`compare-plan-${name}`);
    if (document.activeElement !== input) input.value = value ?? "";
  }
  for (const [name, rows] of Object.entries(plan.limits)) {
    const line = find("compare-limits").querySelector(`[data-limit="${name}"]`).nextElementSibling;
    const most = plan.points.at(-1)[0];
    setText(line, `${name}: ${rows === null ? "not reached" : rows > most ? `beyond ${most} rows` : `${rows} rows`}`);
  }
  setText(find("compare-plan-about"), plan.about);
  drawPlan();
}

function drawPlan() {
  if (!plan || !planChart.clientWidth) return; // in a hidden tab; the resize observer comes back
  const { points, measured, limits, best } = plan;
  const [least, most] = [points[0][0], points.at(-1)[0]];
  const top = 1.12 * Math.max(...points.map(([, rate]) => rate));
  const line = (corners, options) => ({
    type: "scatter",
    mode: "lines",
    x: corners.map(([x]) => x),
    y: corners.map(([, y]) => y),
    ...options,
  });
  const walls = Object.entries(limits)
    .filter(([, rows]) => rows !== null && rows <= most)
    .map(([name, rows]) =>
      line([[rows, 0], [rows, top]], { line: { color: colour("text"), width: 2, dash: LIMIT_DASHES[name] } }),
    );
  drawSmall(
    planChart,
    [
      line(points, { line: { color: colour("active"), width: 2.5 } }),
      line(measured, { mode: "markers", marker: { color: colour("active"), size: 8 } }),
      ...walls,
      line(best ? [best] : [], {
        mode: "markers",
        marker: { color: colour("panel"), size: 16, line: { color: colour("active"), width: 4 } },
      }),
    ],
    { title: "batch size (rows)", range: [Math.min(0, least - 1), 1.04 * most] },
    { title: "output tok/s", range: [0, top] },
  );
}

planKind.replaceChildren(
  ...Object.entries(props.limit_kinds).map(([value, text]) => Object.assign(make("option", "", text), { value })),
);
planKind.addEventListener("change", () => askPlan({}));
for (const name of ["limit", "memory"]) find(`compare-plan-${name}`).addEventListener("input", askPlanAsTyped);
new ResizeObserver(() => {
  if (planChart.clientWidth && (!plan || planFor !== sweepRecord())) askPlan({});
  drawPlan();
}).observe(planChart);
