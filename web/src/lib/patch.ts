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

function change(value: JSONValue, path: string[], edit: (parent: JSONValue, last: string) => JSONValue): JSONValue {
  const [head, ...rest] = path;
  if (head === undefined || value === null || typeof value !== "object") throw new Error("a patch leads nowhere");
  if (rest.length === 0) return edit(value, head);
  if (Array.isArray(value)) {
    const copy = value.slice();
    copy[Number(head)] = change(copy[Number(head)] as JSONValue, rest, edit);
    return copy;
  }
  return { ...value, [head]: change(value[head] as JSONValue, rest, edit) };
}

function put(value: JSONValue, pointer: string, put: JSONValue, insert: boolean): JSONValue {
  if (pointer === "") return put;
  return change(value, tokens(pointer), (parent, last) => {
    if (!Array.isArray(parent)) return { ...(parent as { [k: string]: JSONValue }), [last]: put };
    const copy = parent.slice();
    const index = last === "-" ? copy.length : Number(last);
    copy.splice(index, insert ? 0 : 1, put);
    return copy;
  });
}

function remove(value: JSONValue, pointer: string): JSONValue {
  return change(value, tokens(pointer), (parent, last) => {
    if (Array.isArray(parent)) return parent.toSpliced(Number(last), 1);
    const { [last]: _, ...rest } = parent as { [k: string]: JSONValue };
    return rest;
  });
}

export function patched(value: JSONValue, ops: PatchOp[]): JSONValue {
  for (const o of ops) {
    if (o.op === "add" || o.op === "replace") value = put(value, o.path, o.value as JSONValue, o.op === "add");
    else if (o.op === "remove") value = remove(value, o.path);
    else if (o.op === "copy") value = put(value, o.path, at(value, o.from ?? "") as JSONValue, true);
    else if (o.op === "move") {
      const moved = at(value, o.from ?? "") as JSONValue;
      value = put(remove(value, o.from ?? ""), o.path, moved, true);
    }
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
      const message = list[c.index] as unknown as JSONValue;
      const text = String(at(message, c.path ?? "") ?? "") + (c.text ?? "");
      list[c.index] = put(message, c.path ?? "", text, false) as unknown as Message;
    }
  }
  return list;
}
