// Characters that are not seen or that change the direction of text: with them one name can look like another.
const ODD = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0]/gu;
const codeOf = (c: string): string => `U+${(c.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

/** A name in pieces: text, and the code of each odd character between. */
export function namePieces(name: string): { text: string; code?: string }[] {
  const out: { text: string; code?: string }[] = [];
  let from = 0;
  for (const m of name.matchAll(ODD)) {
    if (m.index > from) out.push({ text: name.slice(from, m.index) });
    out.push({ text: m[0], code: codeOf(m[0]) });
    from = m.index + m[0].length;
  }
  if (from < name.length || !from) out.push({ text: name.slice(from) });
  return out;
}

/** A name where there is only text: an option, a title. */
export const spelled = (name: string): string => name.replace(ODD, (c) => `⟨${codeOf(c)}⟩`);
