// Time to scale, but for silences over two seconds, which take the room of two and are counted.
export const SILENCE = 2000;

export interface Scale {
  /** Where each event stands, from 0 to 1. */
  x: Float64Array;
  cuts: { x: number; ms: number }[];
}

export function scaleOf(times: number[]): Scale {
  const x = new Float64Array(times.length);
  const cuts: Scale["cuts"] = [];
  let sum = 0;
  for (let i = 1; i < times.length; i++) {
    const gap = (times[i] as number) - (times[i - 1] as number);
    if (gap > SILENCE) cuts.push({ x: sum + SILENCE / 2, ms: gap });
    sum += Math.min(gap, SILENCE);
    x[i] = sum;
  }
  // A run without times still has an order.
  for (let i = 0; i < x.length; i++) x[i] = sum > 0 ? (x[i] as number) / sum : i / Math.max(1, x.length - 1);
  for (const c of cuts) c.x /= sum;
  return { x, cuts };
}

/** The event that stands nearest to a place. */
export function nearest(x: Float64Array, at: number): number {
  let lo = 0, hi = x.length - 1;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if ((x[mid] as number) < at) lo = mid + 1;
    else hi = mid;
  }
  return lo > 0 && at - (x[lo - 1] as number) < (x[lo] as number) - at ? lo - 1 : lo;
}
