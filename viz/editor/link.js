// Hands the page's prompts and settings to the editor, by the names of make_order, in an event of its
// own: to copy them as a link, or to keep them for a reload.
(rows, model, batch_size, chat_template, ignore_eos, temperature, top_p, top_k, seed, padding_side,
  min_p, repetition_penalty, min_new_tokens, stop) => {
  const stopString = (line) => line.replace(/\\([n\\])/g, (_, char) => (char === "n" ? "\n" : char));
  const typed = rows.filter((row) => row.prompt.trim());
  const order = {
    prompts: typed.map((row) => row.prompt),
    max_new_tokens: typed.map((row) => row.max_new_tokens),
    model,
    batch_size,
    chat_template,
    ignore_eos,
    temperature,
    top_p,
    top_k,
    seed: seed === "" ? null : seed,
    padding_side,
    min_p,
    repetition_penalty,
    min_new_tokens,
    stop: stop.split("\n").filter((line) => line).map(stopString), // as engine/orders.py reads it
  };
  document.querySelector(".bs-editor").dispatchEvent(new CustomEvent("EVENT", { detail: order }));
}
