// Numbers as they came. A double does not hold every integer above 2^53; a browser that has JSON.rawJSON can keep its text.
import type { JSONValue } from "./types";

interface Exact {
  rawJSON?: (text: string) => JSONValue;
  isRawJSON?: (value: unknown) => boolean;
  parse(text: string, reviver: (key: string, value: unknown, context?: { source?: string }) => unknown): unknown;
}
const exact = JSON as unknown as Exact;

/** JSON.parse, where a number of 16 and more digits that a double would change is kept as its text, which JSON.stringify writes. */
export function parse<T>(text: string): T {
  const { rawJSON } = exact;
  if (!rawJSON || !/\d{16}/.test(text)) return JSON.parse(text) as T;
  return exact.parse(text, (_, value, context) => {
    const source = context?.source;
    return typeof value === "number" && source !== undefined && source.length >= 16 && String(value) !== source ? rawJSON(source) : value;
  }) as T;
}

/** Whether a value is a number, one that is kept as its text too. */
export const isNumber = (value: unknown): boolean => typeof value === "number" || exact.isRawJSON?.(value) === true;
