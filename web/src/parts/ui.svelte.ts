import type { LinkTemplate } from "../lib/links";

// What all parts of the page share: the clock, messages that go by themselves, text that waits to be copied, the theme.
export const ui = $state({ now: Date.now(), toast: "", chosen: "", local: false, theme: "auto" as "auto" | "light" | "dark",
  /** Whether the view follows a live stream, and since when (0: not) the index has lacked an event that the stream has sent. */
  live: false, behind: 0, printing: false, links: [] as LinkTemplate[],
  /** The title of the thread that is shown; empty where it has none. */
  title: "" });
setInterval(() => {
  if (!document.hidden) ui.now = Date.now();
}, 5000);

/** Whether a key is no command of the view: somebody writes, it is the browser's, or a dialog lies over the view. */
export const elsewhere = (e: KeyboardEvent): boolean =>
  (e.target as Element).matches("input, select, textarea") || e.metaKey || e.ctrlKey || e.altKey || document.querySelector("dialog[open]") !== null;

let timer: ReturnType<typeof setTimeout>;
export function toast(text: string): void {
  ui.toast = text;
  clearTimeout(timer);
  timer = setTimeout(() => (ui.toast = ""), Math.max(1800, 50 * text.length));
}

export async function copy(text: string, what = text): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied ${what.length > 48 ? `${what.slice(0, 47)}…` : what}`);
  } catch {
    ui.chosen = text; // over plain HTTP from another host there is no clipboard, and a browser may refuse
  }
}

export function download(name: string, text: string): void {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  a.download = name;
  a.click();
  URL.revokeObjectURL(a.href);
}

const THEMES = ["auto", "light", "dark"] as const;
export function theme(to: (typeof THEMES)[number]): void {
  ui.theme = to;
  if (to === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = to;
  localStorage.setItem("theme", to);
}
export const nextTheme = (): void => theme(THEMES[(THEMES.indexOf(ui.theme) + 1) % THEMES.length] ?? "auto");
const stored = localStorage.getItem("theme");
theme(THEMES.find((t) => t === stored) ?? "auto");
ui.local = localStorage.getItem("time") === "local";
export function toggleLocal(): void {
  ui.local = !ui.local;
  localStorage.setItem("time", ui.local ? "local" : "utc");
}
