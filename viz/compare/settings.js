// The settings of the computed lanes, which the server computes at once.

const slotsInput = find("compare-slots");
const orderSelect = find("compare-order");
const schedules = newestOnly((question) => server.compute_lanes(question), takeLanes);

function takeLanes(found, { basis }) {
  if (shown.basis !== basis) return; // another comparison is shown meanwhile
  if (found.error) setText(find("compare-model").firstElementChild, found.error);
  else showComputed(found);
}

function showComputed(found) {
  computed = found;
  drawLanes();
  drawComputedRows();
  drawAbout();
}

function drawAbout() {
  const [formula, error, check] = find("compare-model").children;
  setText(formula, computed?.about[0] ?? "");
  setText(error, computed?.about[1] ?? "");
  setText(check, shown.check);
}

function drawSettings() {
  find("compare-settings").hidden = !computed;
  find("compare-why").hidden = !shown.why;
  setText(find("compare-why"), shown.why);
  if (!computed) return;
  slotsInput.max = shown.basis.jobs.length;
  slotsInput.value = computed.slots;
  orderSelect.value = computed.order;
  saySlots();
  drawAbout();
}

function saySlots() {
  setText(find("compare-slots-said"), slotsInput.value);
}

function ask() {
  saySlots();
  schedules.ask({ basis: shown.basis, slots: Number(slotsInput.value), order: orderSelect.value });
}

orderSelect.replaceChildren(
  ...Object.entries(props.orders).map(([value, text]) => Object.assign(make("option", "", text), { value })),
);
slotsInput.addEventListener("input", ask);
orderSelect.addEventListener("change", ask);
