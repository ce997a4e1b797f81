// base64 says nothing to a reader, and a page that showed it would draw megabytes. Its type and size stand in its place.
const LONG = /(?:data:([\w.+/-]*)[^,"\s]{0,100};base64,)?[A-Za-z0-9+/_-]{256,}={0,2}/g;

/** The size of what so many characters of base64 hold. */
export function size(bytes: number): string {
  return bytes < 1024 ? `${bytes} B` : bytes < 1024 * 1024 ? `${Math.round(bytes / 1024)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

export const held = (characters: number): string => size(Math.floor((characters * 3) / 4));

/** Text without its base64: long unbroken runs of capitals, small letters and digits, as words and paths are not. */
export function masked(text: string): string {
  if (text.length < 256) return text;
  return text.replace(LONG, (run: string, type: string | undefined) => {
    const data = run.indexOf(",") + 1;
    const kinds = [/[A-Z]/, /[a-z]/, /[0-9]/].filter((k) => k.test(run.slice(data, data + 1024))).length;
    return data === 0 && kinds < 2 ? run : `⟨${type || "base64"}, ${held(run.length - data)}, not drawn⟩`;
  });
}
