import { later, path, pause, send, waitOf } from "./api";

/** What a stream said since it was last heard: at is the last position; edge is the latest event that began or ended a run. */
export interface News {
  edge?: { run: string; at: string };
  /** Events may have been missed: the tab was hidden, or the stream is over. */
  all?: boolean;
}

/**
 * Follows a thread or a run: calls changed soon after events have come. What they change the page reads from GET …/state, so that it
 * never folds by itself. There is one stream a tab. It is closed while the tab is hidden, and goes on with Last-Event-ID.
 */
export function follow(thread: string, run: string | undefined, changed: (news: News) => void, state: (open: boolean) => void): () => void {
  const SOON = 250;
  let last = "";
  const stopping = new AbortController();
  let stream: AbortController | undefined;
  let pending: ReturnType<typeof setTimeout> | undefined;
  let retry = 1000; // what the server asks for
  let wait = retry; // twice as long after each attempt that brings nothing
  let news: News = {};
  let current = run ?? "";
  let edges = false;

  function soon(): void {
    pending ??= setTimeout(() => {
      const said = news;
      pending = undefined;
      news = {};
      changed(said);
    }, SOON);
  }
  function hear(block: string): void {
    const id = /^id: ?(.*)$/m.exec(block)?.[1];
    if (id) last = id;
    const data = /^data: ?(.*)$/m.exec(block)?.[1];
    if (data === undefined && /^: the thread was erased$/m.test(block)) { news.all = true; soon(); }
    if (data === undefined) return;
    // Most events are pieces of text: only those that can begin or end a run are read.
    if (/"type"\s*:\s*"RUN_(STARTED|FINISHED|ERROR)"/.test(data)) {
      const event = JSON.parse(data) as { type: string; runId?: string };
      if (event.type === "RUN_STARTED" && event.runId) current = event.runId;
      // The start of the run that is followed is known; the index has it only with the run's next record.
      edges ||= /^RUN_(FINISHED|ERROR)$/.test(event.type) || (event.type === "RUN_STARTED" && run === undefined);
    }
    // An event without an id belongs to the next that has one; a join itself has no position.
    const at = id && /^\d+:\d+/.exec(id)?.[0];
    if (!at) return;
    if (edges) news.edge = { run: current, at };
    edges = false;
    soon();
  }

  async function read(signal: AbortSignal): Promise<"over" | "again"> {
    const answer = await send(`${path(thread, run)}/stream`, { signal, headers: { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) } });
    if (answer.status === 204) return "over";
    if (last && (answer.status === 400 || answer.status === 410)) {
      last = ""; // there is nothing to go on from: it is too old, or of topics of before
      news.all = true;
      soon();
      return "again";
    }
    if (!answer.ok || !answer.body) {
      wait = Math.max(wait, waitOf(answer));
      throw new Error(`HTTP ${answer.status}`);
    }
    state(true);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest: string[] = []; // chunks of a block that is not there as a whole
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "again";
      wait = retry;
      const before = rest.at(-1)?.at(-1) ?? "";
      rest.push(value);
      if (!(before + value).includes("\n\n")) continue; // a large event comes in many
      const blocks = rest.join("").split("\n\n");
      rest = [blocks.pop() ?? ""];
      for (const block of blocks) {
        hear(block);
        const said = /^retry: ?(\d+)$/m.exec(block)?.[1];
        if (said) retry = wait = Number(said);
      }
    }
  }

  let looping = false;
  let nap = new AbortController();
  async function loop(): Promise<void> {
    if (looping) return; // it opens the one stream again when it wakes
    looping = true;
    while (!stopping.signal.aborted && !document.hidden) {
      stream = new AbortController();
      try {
        // The stream is ahead of the index: that the run is over may be there a moment later.
        if ((await read(stream.signal)) === "over") { news.all = true; soon(); }
      } catch {
        // closed by this page, or the server is away: it is tried again below
      }
      state(false);
      nap = new AbortController();
      await pause(wait * (0.75 + Math.random() / 2), nap.signal);
      wait = later(wait);
    }
    looping = false;
  }
  function visible(): void {
    if (document.hidden) stream?.abort();
    else {
      changed({ all: true });
      wait = retry;
      nap.abort();
      void loop();
    }
  }
  document.addEventListener("visibilitychange", visible);
  void loop();
  return () => {
    stopping.abort();
    nap.abort();
    stream?.abort();
    clearTimeout(pending);
    document.removeEventListener("visibilitychange", visible);
    state(false);
  };
}
