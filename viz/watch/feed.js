// What the server tells, as long as the tab is in sight: the state whole, then each change of it.

const watchRoot = find("watch");
let told = null; // what the server has told last
let source = null; // where it comes from, or null
let model = props.models[0];

const address = (path) => new URL(path, document.baseURI).href;
const query = () => `model=${encodeURIComponent(model)}`;

function hear(next) {
  told = next;
  sayLost("");
  drawWatch();
}

function sayLost(text) {
  setText(find("watch-lost"), text);
  find("watch-lost").hidden = !text;
}

function listen() {
  source = new EventSource(address(`watch/events?${query()}`));
  source.addEventListener("whole", ({ data }) => hear(JSON.parse(data)));
  source.addEventListener("change", ({ data }) => hear(patched(told, JSON.parse(data))));
  source.addEventListener("error", ({ target }) => {
    const closed = target.readyState === EventSource.CLOSED;
    sayLost(closed ? "The server does not let this page watch now. Reload it to try again." : "The connection is lost. Trying again…");
  });
}

function hush() {
  source?.close();
  source = null;
}

// A tab that nobody sees asks for nothing.
function listenInSight() {
  const seen = element.isConnected && watchRoot.checkVisibility() && !document.hidden;
  if (seen && !source) listen();
  if (!seen && source) hush();
}

new IntersectionObserver(listenInSight).observe(watchRoot);
onDocument("visibilitychange", listenInSight);
