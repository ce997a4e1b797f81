/** A link to another tool, as the operator wrote it (--page-link). */
export interface LinkTemplate {
  name: string;
  url: string;
}

export interface About {
  thread: string;
  run: string;
  trace?: string | undefined;
  agent?: string | undefined;
  labels?: Record<string, string> | undefined;
}

/** The links that a run has all values for. Values are escaped, so that none can add to the address what the operator did not write. */
export function linksOf(templates: LinkTemplate[], about: About): LinkTemplate[] {
  const values = new Map<string, string | undefined>([["thread", about.thread], ["run", about.run], ["trace", about.trace], ["agent", about.agent]]);
  for (const [k, v] of Object.entries(about.labels ?? {})) values.set(`label.${k}`, v);
  return templates.flatMap(({ name, url }) => {
    let whole = true;
    const to = url.replace(/\{([^{}]*)\}/g, (_, field: string) => {
      const value = values.get(field);
      if (!value || /^\.+$/.test(value)) whole = false; // dots are not escaped, and lead up the path
      return encodeURIComponent(value ?? "");
    });
    return whole && to.startsWith("https://") ? [{ name, url: to }] : [];
  });
}
