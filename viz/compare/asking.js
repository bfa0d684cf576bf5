// Questions to the server. While one is under way, only the newest of the next ones waits.

function newestOnly(send, take) {
  let busy = false;
  let waiting = null;
  return {
    async ask(question) {
      waiting = question;
      if (busy) return;
      busy = true;
      while (waiting) {
        const asked = waiting;
        waiting = null;
        take(await answer(send(asked)), asked);
      }
      busy = false;
    },
  };
}
