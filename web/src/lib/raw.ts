// JSON as it came. JSON.parse rounds integers above 2^53 and knows no order of keys such as "1", so what is shown as raw is cut out of the answer.

/** Where the JSON value at i ends. */
function end(text: string, i: number): number {
  let depth = 0;
  for (; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 34) i = string(text, i);
    else if (c === 123 || c === 91) depth++;
    else if (c === 125 || c === 93) {
      if (depth === 0) return i; // the end of what holds a number or a word
      if (--depth === 0) return i + 1;
      continue;
    } else if (c === 44 && depth === 0) return i;
    else continue;
    if (depth === 0 && c === 34) return i + 1;
  }
  return i;
}

/** Where the closing quote of the string at i is. */
function string(text: string, i: number): number {
  for (i++; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 92) i++;
    else if (c === 34) return i;
  }
  return i;
}

const space = (text: string, i: number): number => {
  while (/\s/.test(text[i] ?? "")) i++;
  return i;
};

/** Calls f with the name of each member of the object at i, and where its value begins and ends. */
function members(text: string, i: number, f: (name: string, from: number, to: number) => void): void {
  for (i = space(text, i + 1); text[i] === '"'; ) {
    const close = string(text, i);
    const from = space(text, space(text, close + 1) + 1);
    const to = end(text, from);
    f(text.slice(i + 1, close), from, to);
    i = space(text, to);
    if (text[i] === ",") i = space(text, i + 1);
  }
}

/** The text of the event of each step of an answer of GET …/state. */
export function events(answer: string): (string | undefined)[] {
  const out: (string | undefined)[] = [];
  members(answer, space(answer, 0), (name, from) => {
    if (name !== "steps" || answer[from] !== "[") return;
    for (let i = space(answer, from + 1); answer[i] === "{"; ) {
      let event: string | undefined;
      members(answer, i, (name, from, to) => { if (name === "event") event = answer.slice(from, to).trimEnd(); });
      out.push(event);
      i = space(answer, end(answer, i));
      if (answer[i] === ",") i = space(answer, i + 1);
    }
  });
  return out;
}

const SPEAKS = ["delta", "content", "snapshot", "message", "toolCallName", "stepName", "name", "activityType", "value", "outcome", "messages"];

/** What an event says, from its text: the member that speaks, and the others but its type, as they came. */
export function gist(event: string): { text: string; rest: string } {
  const all = new Map<string, string>();
  if (event[0] === "{") members(event, 0, (name, from, to) => all.set(name, event.slice(from, to).trimEnd()));
  const name = SPEAKS.find((n) => all.has(n));
  let text = name === undefined ? "" : (all.get(name) ?? "");
  try {
    if (text[0] === '"') text = JSON.parse(text) as string;
  } catch {
    // its end was cut off
  }
  return { text: all.size ? text : event, rest: [...all].filter(([n]) => n !== "type" && n !== name).map(([n, value]) => `${n}: ${value}`).join(", ") };
}

const utf8 = new TextEncoder();
export const bytesOf = (text: string): number => utf8.encode(text).length;

/** JSON with line breaks, its strings and numbers as they are. */
export function indented(text: string): string {
  const out: string[] = [];
  let depth = 0;
  const line = () => out.push("\n", "  ".repeat(depth));
  for (let i = 0; i < text.length; i++) {
    const c = text[i] as string;
    if (c === '"') {
      const close = string(text, i);
      out.push(text.slice(i, close + 1));
      i = close;
    } else if (c === "{" || c === "[") {
      const next = space(text, i + 1);
      out.push(c);
      if (text[next] === "}" || text[next] === "]") { out.push(text[next] as string); i = next; continue; }
      depth++;
      line();
    } else if (c === "}" || c === "]") { depth--; line(); out.push(c); }
    else if (c === ",") { out.push(c); line(); }
    else if (c === ":") out.push(": ");
    else if (!/\s/.test(c)) out.push(c);
  }
  return out.join("");
}
