import type { Change, JSONValue, Message, PatchOp } from "./types";

// JSON Patch (RFC 6902) on values that are never changed in place: what a patch leaves alone is shared, so that a
// checkpoint every few events costs little.
const tokens = (pointer: string) =>
  pointer
    .split("/")
    .slice(1)
    .map((t) => t.replaceAll("~1", "/").replaceAll("~0", "~"));

export function at(value: JSONValue | undefined, pointer: string): JSONValue | undefined {
  for (const t of tokens(pointer)) {
    if (value === null || typeof value !== "object") return undefined;
    value = Array.isArray(value) ? value[Number(t)] : Object.hasOwn(value, t) ? value[t] : undefined;
  }
  return value;
}

type Container = { [key: string]: JSONValue } | JSONValue[];
function write(into: Container, name: string, value: JSONValue): void {
  if (Array.isArray(into)) into[Number(name)] = value;
  else if (name === "__proto__") Object.defineProperty(into, name, { value, writable: true, enumerable: true, configurable: true });
  else into[name] = value;
}

/** Carries out the operations that the server sends: add, replace and remove. Each object and list on their paths is copied once. */
export function patched(value: JSONValue, ops: PatchOp[]): JSONValue {
  const copies = new Set<Container>();
  function own(v: JSONValue | undefined): Container {
    if (v === null || typeof v !== "object") throw new Error("a patch leads nowhere");
    if (copies.has(v)) return v;
    const copy = Array.isArray(v) ? v.slice() : { ...v };
    copies.add(copy);
    return copy;
  }
  for (const o of ops) {
    const way = tokens(o.path), last = way.pop(), put = o.value as JSONValue;
    if (last === undefined) { value = put; continue; }
    let parent = own(value);
    value = parent;
    for (const t of way) {
      const child = own((parent as { [key: string]: JSONValue })[t]);
      write(parent, t, child);
      parent = child;
    }
    if (!Array.isArray(parent)) { if (o.op === "remove") Reflect.deleteProperty(parent, last); else write(parent, last, put); }
    else parent.splice(last === "-" ? parent.length : Number(last), o.op === "add" ? 0 : 1, ...(o.op === "remove" ? [] : [put]));
  }
  return value;
}

export function messagesAfter(list: Message[], changes: Change["messages"]): Message[] {
  if (changes.length === 0) return list;
  list = list.slice();
  for (const c of changes) {
    if (c.op === "add") list.splice(c.index, 0, c.message as Message);
    else if (c.op === "replace") list[c.index] = c.message as Message;
    else if (c.op === "remove") list.splice(c.index, 1);
    else {
      const message = list[c.index] as unknown as JSONValue, path = c.path ?? "";
      list[c.index] = patched(message, [{ op: "replace", path, value: String(at(message, path) ?? "") + (c.text ?? "") }]) as unknown as Message;
    }
  }
  return list;
}
