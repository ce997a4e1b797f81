// The figures of the view Numbers: what the API's groups are by slice of time and by column.
export const MEASURES = ["runs", "errors", "regenerations", "edits", "inputTokens", "outputTokens", "tokens", "firstTokenP50", "durationP50", "durationP95", "toolCalls", "toolFailures"] as const;
export type Figures = Partial<Record<(typeof MEASURES)[number], number | null>>;
export interface Group {
  by: Record<string, string>;
  values: Figures;
}

export interface Range {
  text: string;
  unit: "hour" | "day" | "week";
  slices: number;
}

export const RANGES: Record<string, Range> = {
  "12w": { text: "last 12 weeks", unit: "week", slices: 12 },
  "30d": { text: "last 30 days", unit: "day", slices: 30 },
  "48h": { text: "last 48 hours", unit: "hour", slices: 48 },
};

const HOUR = 3_600_000;
export const SPAN = { hour: HOUR, day: 24 * HOUR, week: 7 * 24 * HOUR };
const MONDAY = 4 * 24 * HOUR; // 1970-01-05

/** The beginnings of the slices, oldest first, as the API writes them; the last one is still running. */
export function slices(range: Range, now: number): string[] {
  const span = SPAN[range.unit];
  const shift = range.unit === "week" ? MONDAY : 0;
  const last = Math.floor((now - shift) / span) * span + shift;
  return Array.from({ length: range.slices }, (_, i) => {
    const at = new Date(last - (range.slices - 1 - i) * span).toISOString();
    return range.unit === "hour" ? `${at.slice(0, 13)}:00:00Z` : at.slice(0, 10);
  });
}

/** The RFC 3339 time at which a slice begins. */
export const begins = (slice: string): string => (slice.length === 10 ? `${slice}T00:00:00Z` : slice);

/** The time at which the next one begins. */
export const ends = (slice: string, unit: Range["unit"]): string => new Date(Date.parse(begins(slice)) + SPAN[unit]).toISOString().replace(".000", "");

export interface Column {
  name: string;
  runs: number;
  at: Figures[];
}

/** The columns, those with most runs first, one figure set a slice. */
export function columns(groups: Group[], field: string, unit: string, at: string[]): Column[] {
  const place = new Map(at.map((s, i) => [s, i]));
  const all = new Map<string, Column>();
  for (const g of groups) {
    const i = place.get(g.by[unit] ?? "");
    if (i === undefined) continue;
    const name = g.by[field] ?? "";
    let column = all.get(name);
    if (!column) all.set(name, (column = { name, runs: 0, at: at.map(() => ({})) }));
    column.at[i] = g.values;
    column.runs += g.values.runs ?? 0;
  }
  return [...all.values()].sort((a, b) => b.runs - a.runs || (a.name < b.name ? -1 : 1));
}

/** A round number that is no less than v. */
export function roundUp(v: number): number {
  if (!(v > 0)) return 1;
  const p = 10 ** Math.floor(Math.log10(v));
  return p * ([1, 2, 3, 4, 5, 6, 8, 10].find((x) => v <= x * p) ?? 10);
}

export const total = (at: Figures[], f: (w: Figures) => number, from = 0, to = at.length): number => at.slice(from, to).reduce((sum, w) => sum + f(w), 0);
