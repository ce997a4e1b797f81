const address = new URL(location);

/** The thread that the page's address names: a reload comes back to it, another tab joins it. */
export const threadId = address.searchParams.get('thread') ?? undefined;

/** Names a thread in the page's address. */
export function show(thread) {
  if (thread) address.searchParams.set('thread', thread);
  else address.searchParams.delete('thread');
  history.replaceState(null, '', address);
  return thread;
}
