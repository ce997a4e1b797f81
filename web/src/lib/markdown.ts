import MarkdownIt from "markdown-it";

// Message text is a stranger's. Raw HTML stays text, nothing is fetched: an image is a placeholder that shows its address,
// and only https and mailto are links.
const md = new MarkdownIt({ html: false, linkify: false, breaks: true });
md.validateLink = () => true; // what is no link is shown as text below, not dropped
const escape = md.utils.escapeHtml;
const safe = (url: string): boolean => /^(https:\/\/|mailto:)/i.test(url);

md.renderer.rules.image = (tokens, i) => {
  const token = tokens[i];
  return `<span class="placeholder">image not loaded: ${escape(token?.content ?? "")} <code>${escape(token?.attrGet("src") ?? "")}</code></span>`;
};
md.renderer.rules.link_open = (tokens, i) => {
  const url = tokens[i]?.attrGet("href") ?? "";
  return safe(url) ? `<a class="link" href="${escape(url)}" target="_blank" rel="noopener noreferrer nofollow">` : `<span class="placeholder">`;
};
md.renderer.rules.link_close = (tokens, i) => {
  for (let k = i, depth = 0; k >= 0; k--) {
    const t = tokens[k];
    if (t?.type === "link_close") depth++;
    if (t?.type === "link_open" && --depth === 0) {
      const url = t.attrGet("href") ?? "";
      return safe(url) ? "</a>" : ` <code>${escape(url)}</code></span>`;
    }
  }
  return "</span>";
};

// A table that is too wide scrolls by itself, also by the keyboard.
md.renderer.rules.table_open = () => `<div class="wide-table" role="group" aria-label="Table" tabindex="0"><table>`;
md.renderer.rules.table_close = () => "</table></div>";

// Alignment would be an inline style, which the Content-Security-Policy refuses.
for (const cell of ["th", "td"]) md.renderer.rules[`${cell}_open`] = () => `<${cell}>`;

export const render = (text: string): string => md.render(text);
