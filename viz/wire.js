// The states of a run under way as they come past Gradio; see wire.py.

let wire = null; // the WebSocket that is heard, or was last

// Calls `hear` with each state that comes over the wire of this name, and `end` when none comes any more.
function follow(name, hear, end) {
  const address = new URL(`wire/${name}`, document.baseURI);
  address.protocol = address.protocol.replace("http", "ws");
  if (wire?.url === address.href) return;
  wire?.close();
  wire = new WebSocket(address);
  let state;
  wire.addEventListener("message", ({ data }) => {
    state = patched(state, JSON.parse(data));
    hear(state);
  });
  wire.addEventListener("close", end);
}

function hangUp() {
  wire?.close();
}

// See patch.py.
function patched(before, patch) {
  if (Array.isArray(patch)) return patch[0];
  if (typeof patch === "string") return before + patch;
  const after = Array.isArray(before) ? [...before] : { ...before };
  for (const [name, part] of Object.entries(patch)) {
    if (part === 0) delete after[name];
    else after[name] = patched(before[name], part);
  }
  return after;
}
