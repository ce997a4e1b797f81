/** All that a person can set, as the address says it. */
const FIELDS = ["thread", "run", "at", "zoom", "pane", "open", "bundle", "compare", "q", "find", "show", "plain", "lanes", "numbers", "range", "tables", "cols"] as const;
export type Field = (typeof FIELDS)[number];
export type Place = Partial<Record<Field, string>>;

function read(): Place {
  const q = new URLSearchParams(location.search);
  const place: Place = {};
  for (const name of FIELDS) {
    const value = q.get(name);
    if (value !== null) place[name] = value;
  }
  return place;
}

export const place: { now: Place } = $state({ now: read() });
addEventListener("popstate", () => (place.now = read()));

export function href(to: Place): string {
  const q = new URLSearchParams();
  for (const name of FIELDS) {
    const value = to[name];
    if (value !== undefined && value !== "") q.set(name, value);
  }
  return q.size ? `?${q}` : "./";
}

/** Goes to a place: choosing a run or a view adds an entry to the history, moving within a run replaces it. */
export function go(to: Place, replace = false): void {
  const address = href(to);
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  place.now = read();
}

export const move = (change: Place, replace = true): void => go({ ...place.now, ...change }, replace);

/** Lets plain clicks on links of this page move without loading it again. */
export function follow(e: MouseEvent): void {
  const a = (e.target as Element).closest("a");
  if (!a || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || a.target) return;
  const to = a.getAttribute("href") ?? "";
  if (!to.startsWith("?") && to !== "./") return;
  e.preventDefault();
  history.pushState(null, "", to);
  place.now = read();
}
