/** What a call to Skein failed with: an RFC 9457 problem, or a server that does not answer (`status` 0). The message says what to do. */
export class SkeinError extends Error {
  override readonly name = 'SkeinError';
  constructor(
    /** The HTTP status; 0 if there was no answer. */
    readonly status: number,
    /** What was called, such as `GET /v1/threads/a`. */
    readonly call: string,
    /** What happened, in the server's words. */
    readonly detail: string,
    /** The short name of the violated rule, such as `run-ended`. */
    readonly reason?: string,
    /** Seconds after which the server wants to be asked again. */
    readonly retryAfter?: number,
    /** The whole problem document. */
    readonly problem?: Record<string, unknown>,
    options?: ErrorOptions,
  ) {
    super(`${call}: ${status ? `${status}: ` : ''}${detail}${advice[status] ? ` (${advice[status]})` : ''}`, options);
  }

  /** Whether the same call may succeed later. */
  get retryable(): boolean {
    return [0, 408, 425, 429, 502, 503, 504].includes(this.status) || this.reason === 'cut'; // cut: the request came in part
  }
}

// What the server cannot know: how a program of this package gives it what it misses.
const advice: Record<number, string> = {
  401: 'pass a valid apiKey',
  403: 'pass an apiKey with the scope that the call needs: read, or publish for runs, events and stops',
  410: 'the thread was erased, or the events are older than Skein keeps: start again without lastEventId, or with a new thread',
  421: 'url is the address of ingest, readUrl that of query',
};

/** Reads a refusal. Bodies that are no problem document, as of a gateway, are quoted in part. */
export async function problemOf(call: string, response: Response): Promise<SkeinError> {
  const text = await response.text().catch(() => '');
  let problem: Record<string, unknown> = {};
  if (/json/.test(response.headers.get('content-type') ?? '')) {
    try {
      problem = Object(JSON.parse(text));
    } catch {
      // the text is quoted
    }
  }
  const words =
    response.status === 425 ? 'not indexed yet: ask again, or leave atLeast out' : text.slice(0, 200) || response.statusText;
  const after = response.headers.get('retry-after');
  const seconds = after === null ? NaN : /^\d+$/.test(after) ? Number(after) : (Date.parse(after) - Date.now()) / 1000;
  return new SkeinError(
    response.status,
    call,
    String(problem.detail ?? problem.title ?? words),
    problem.reason as string | undefined,
    Number.isNaN(seconds) ? undefined : Math.max(0, seconds),
    problem,
  );
}
