import { parse } from "./json";

// The HTTP API. The key, where one is needed, lives in this module alone: it is gone when the tab is closed or loaded again.
let key = "";
let ask: () => Promise<string> = () => Promise.reject(new Error("nobody asks for a key"));
/** Reports whether requests carry a key. */
export const keyed = (): boolean => key !== "";

/** Says how a key is asked for when the API wants one. */
export function askWith(f: () => Promise<string>): void {
  ask = f;
}

/** What the API says when it refuses (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** For how many milliseconds the server wants to be left alone. */
    readonly wait = 0,
    /** The address of the stage that serves the request, where another one got it (421). */
    readonly url?: string,
    readonly reason?: string,
  ) {
    super(message);
  }
}

/** What is said of a request that failed; without an answer, fetch throws a TypeError. */
export const say = (e: unknown): string => (e instanceof TypeError ? "The server does not answer." : e instanceof Error ? e.message : String(e));

/** Parameters of a request; of a list each one. */
export type Query = Record<string, string | number | string[] | undefined>;

export function path(thread: string, run?: string): string {
  const at = `/v1/threads/${encodeURIComponent(thread)}`;
  return run === undefined ? at : `${at}/runs/${encodeURIComponent(run)}`;
}

export function address(to: string, query: Query = {}): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== "") q.append(name, String(one));
  return q.size ? `${to}?${q}` : to;
}

/** Sends a request with the key, which is asked for where the API refuses the one at hand. */
export async function send(to: string, init: RequestInit = {}): Promise<Response> {
  for (;;) {
    const sent = key;
    const headers = new Headers(init.headers);
    if (sent) headers.set("Authorization", `Bearer ${sent}`);
    const answer = await fetch(to, { ...init, headers, credentials: "omit" });
    if (answer.status !== 401) return answer;
    if (key === sent) key = await ask();
  }
}

async function refuse(answer: Response): Promise<never> {
  const text = await answer.text();
  let detail = text.slice(0, 300), url: string | undefined, reason: string | undefined;
  try {
    ({ detail = detail, url, reason } = JSON.parse(text) as { detail?: string; url?: string; reason?: string });
  } catch {
    // not a problem document: the text itself is what there is to say
  }
  throw new Problem(answer.status, detail || `HTTP ${answer.status}`, waitOf(answer), url, reason);
}

/** What Retry-After says, in milliseconds. */
export const waitOf = (answer: Response): number => 1000 * (Number(answer.headers.get("Retry-After")) || 0);

let hurried = new AbortController();
/** Ends all pauses: what waits to be read again is read now. */
export function hurry(): void {
  hurried.abort();
  hurried = new AbortController();
}

/** Resolves after some time, and at once where nobody waits any more or somebody hurries. */
export const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((done) => {
    const ended = AbortSignal.any([signal, hurried.signal]);
    const end = () => { clearTimeout(timer); ended.removeEventListener("abort", end); done(); };
    const timer = setTimeout(end, ms);
    ended.addEventListener("abort", end);
  });

/** How long to wait before the next attempt: twice as long each time, and half a minute at most. */
export const later = (wait: number): number => Math.min(2 * wait, 30_000);

/** Reads, and reads again where that may go well: the server is away or full, or its index is behind. told hears of each failure. */
export async function again<T>(read: () => Promise<T>, signal: AbortSignal, told: (e: unknown) => void): Promise<T> {
  for (let wait = 1000; ; wait = later(wait)) {
    try {
      return await read();
    } catch (e) {
      const passes = !(e instanceof Problem) || e.status === 425 || e.status === 429 || e.status >= 500;
      if (signal.aborted || !passes) throw e;
      told(e);
      await pause(Math.max(wait, e instanceof Problem ? e.wait : 0), signal);
      signal.throwIfAborted(); // what read needs may be gone
    }
  }
}

export async function get<T>(to: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  const answer = await send(address(to, query), signal ? { signal } : {});
  if (!answer.ok) return refuse(answer);
  return parse<T>(await answer.text());
}

/** Lets the browser draw and hear keys between two works on a large text. */
export const apart = async (text: string): Promise<void> => { if (text.length > 1 << 18) await new Promise((done) => setTimeout(done)); };

/** An answer and its text, for what parsing does not keep: the order of members, spaces, how a number is written. */
export async function getText<T>(to: string, query: Query = {}, signal?: AbortSignal): Promise<{ body: T; text: string }> {
  const answer = await send(address(to, query), signal ? { signal } : {});
  if (!answer.ok) return refuse(answer);
  const text = await answer.text();
  const body = parse<T>(text);
  await apart(text);
  return { body, text };
}

/** Whether the index has an event of a run by now; the server waits for it for some seconds. */
export async function indexed(thread: string, run: string, at: string, signal: AbortSignal): Promise<boolean> {
  const answer = await send(address(path(thread, run), { atLeast: at }), { signal });
  await answer.body?.cancel();
  if (answer.ok || answer.status === 404 || answer.status === 410) return true; // erased: there is nothing to wait for
  if (answer.status === 425) return false;
  throw new Problem(answer.status, `HTTP ${answer.status}`);
}

/** Posts to query, which serves the page, or to ingest where query names its address. The page's policy allows only the one that query is set to. */
export async function post<T>(to: string, body: object, base = ""): Promise<T> {
  const answer = await send(base + to, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }).catch((e: unknown) => {
    throw base ? new Error(`The browser got no answer from ingest at ${base}: it is away, or its --query-url is not ${location.origin}`) : e;
  });
  if (answer.ok) return parse<T>(await answer.text());
  return refuse(answer).catch((e: Problem) => {
    if (e.status !== 421 || base) throw e;
    if (!e.url) throw new Error("Only ingest stops runs, and query, which serves this page, does not know its address: set --ingest-url of query");
    return post<T>(to, body, e.url.replace(/\/+$/, ""));
  });
}
