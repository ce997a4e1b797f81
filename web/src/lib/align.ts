export interface Said { role: string; text: string }
export interface Pair { a?: Said; b?: Said; same: boolean }

/** Longest common subsequence of two lists, as pairs of indexes, beginnings and ends that are equal taken off first. */
function common<T>(a: T[], b: T[], equal: (x: T, y: T) => boolean): [number, number][] {
  const out: [number, number][] = [];
  let head = 0;
  while (head < a.length && head < b.length && equal(a[head] as T, b[head] as T)) out.push([head, head++]);
  const n = a.length - head, m = b.length - head;
  if (n * m > 4_000_000) return out; // too long to compare: the rest counts as different
  const width = m + 1;
  const best = new Uint32Array((n + 1) * width);
  for (let i = n - 1; i >= 0; i--)
    for (let j = m - 1; j >= 0; j--)
      best[i * width + j] = equal(a[head + i] as T, b[head + j] as T) ? (best[(i + 1) * width + j + 1] ?? 0) + 1 : Math.max(best[(i + 1) * width + j] ?? 0, best[i * width + j + 1] ?? 0);
  for (let i = 0, j = 0; i < n && j < m; ) {
    if (equal(a[head + i] as T, b[head + j] as T)) out.push([head + i++, head + j++]);
    else if ((best[(i + 1) * width + j] ?? 0) >= (best[i * width + j + 1] ?? 0)) i++;
    else j++;
  }
  return out;
}

/** Two conversations side by side. Between equal messages those of one role stand beside one another. */
export function align(a: Said[], b: Said[]): Pair[] {
  const out: Pair[] = [];
  let i = 0, j = 0;
  const rest = (toA: number, toB: number): void => {
    while (i < toA || j < toB) {
      const x = i < toA ? a[i] : undefined, y = j < toB ? b[j] : undefined;
      if (x && y && x.role === y.role) { out.push({ a: x, b: y, same: false }); i++; j++; }
      else if (x && (!y || toA - i >= toB - j)) { out.push({ a: x, same: false }); i++; }
      else if (y) { out.push({ b: y, same: false }); j++; }
    }
  };
  for (const [x, y] of common(a, b, (p, q) => p.role === q.role && p.text === q.text)) {
    rest(x, y);
    out.push({ a: a[i++] as Said, b: b[j++] as Said, same: true });
  }
  rest(a.length, b.length);
  return out;
}

/** Both texts in words, those that only one side has marked. */
export function words(x: string, y: string): [{ text: string; own: boolean }[], { text: string; own: boolean }[]] {
  const most = 8192; // what is behind that is compared as a whole
  const split = (s: string): string[] => s.slice(0, most).match(/\s+|[\p{L}\p{N}_]+|[^\s]/gu) ?? [];
  const a = split(x), b = split(y);
  const both = common(a, b, (p, q) => p === q);
  const rest = { x: x.slice(most), y: y.slice(most) };
  const mark = (list: string[], shared: Set<number>, behind: string) => {
    const out: { text: string; own: boolean }[] = [];
    list.forEach((text, i) => {
      const own = !shared.has(i) && text.trim() !== "";
      const last = out.at(-1);
      if (last && last.own === own) last.text += text;
      else out.push({ text, own });
    });
    if (behind) out.push({ text: behind, own: rest.x !== rest.y });
    return out;
  };
  return [mark(a, new Set(both.map(([i]) => i)), rest.x), mark(b, new Set(both.map(([, j]) => j)), rest.y)];
}
