import { path, send } from "./api";

/**
 * Follows a thread or a run: calls changed soon after events have come. What they change the page reads from GET …/state, so that it
 * never folds by itself. There is one stream a tab. It is closed while the tab is hidden, and goes on with Last-Event-ID.
 */
export function follow(thread: string, run: string | undefined, changed: () => void, state: (open: boolean) => void): () => void {
  const SOON = 250;
  let last = "";
  let stopped = false;
  let stream: AbortController | undefined;
  let pending: ReturnType<typeof setTimeout> | undefined;
  let retry = 1000;

  function soon(): void {
    pending ??= setTimeout(() => {
      pending = undefined;
      changed();
    }, SOON);
  }

  async function read(signal: AbortSignal): Promise<"over" | "again"> {
    const answer = await send(`${path(thread, run)}/stream`, { signal, headers: { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) } });
    if (answer.status === 204) return "over";
    if (answer.status === 410) {
      last = "";
      return "again";
    }
    if (!answer.ok || !answer.body) throw new Error(`HTTP ${answer.status}`);
    state(true);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "again";
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop() ?? "";
      for (const block of blocks) {
        const id = /^id: ?(.*)$/m.exec(block)?.[1];
        if (id) last = id;
        if (/^data:/m.test(block) && last !== "" && last !== "join") soon();
        const wait = /^retry: ?(\d+)$/m.exec(block)?.[1];
        if (wait) retry = Number(wait);
      }
    }
  }

  async function loop(): Promise<void> {
    while (!stopped && !document.hidden) {
      stream = new AbortController();
      try {
        // The stream is ahead of the index: that the run is over may be there a moment later.
        if ((await read(stream.signal)) === "over") soon();
      } catch {
        // closed by this page, or the server is away: it is tried again below
      }
      state(false);
      await new Promise((done) => setTimeout(done, retry));
    }
  }
  function visible(): void {
    if (document.hidden) stream?.abort();
    else {
      changed();
      void loop();
    }
  }
  document.addEventListener("visibilitychange", visible);
  void loop();
  return () => {
    stopped = true;
    stream?.abort();
    clearTimeout(pending);
    document.removeEventListener("visibilitychange", visible);
    state(false);
  };
}
