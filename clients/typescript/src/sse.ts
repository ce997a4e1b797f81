/** A block of an event stream, as the HTML standard reads it; `data` is absent in one that only sets an id. */
export interface Block {
  id?: string;
  data?: string;
}

// A live stream sends a comment after 15 s of silence: one that is silent for longer than this is dead.
const silence = 60_000;

/** Reads an event stream to its end. What follows the last empty line is cut, and left out. */
export async function* readBlocks(body: ReadableStream<Uint8Array>, comment?: (text: string) => void): AsyncGenerator<Block> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let half = false; // the last text ended with a carriage return, which may be half of a line break
  let id: string | undefined;
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await awake(reader.read());
      if (done) return;
      let text = decoder.decode(value, { stream: true });
      if (half && text.startsWith('\n')) text = text.slice(1);
      else if (text === '') continue;
      half = text.endsWith('\r');
      rest += text;
      if (!/[\r\n]/.test(text)) continue; // a large event comes in many parts
      const lines = rest.split(/\r\n|\n|\r/);
      rest = lines.pop()!;
      for (const line of lines) {
        if (line === '') {
          if (id !== undefined || data.length)
            yield { ...(id !== undefined && { id }), ...(data.length && { data: data.join('\n') }) };
          id = undefined;
          data = [];
        } else if (line.startsWith(':')) {
          comment?.(line.slice(1).trim());
        } else {
          const [, field, content] = /^([^:]*):? ?([^]*)$/.exec(line)!;
          if (field === 'data') data.push(content!);
          else if (field === 'id') id = content;
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // of a stream that has failed, or was read to its end
  }
}

async function awake<T>(read: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const asleep = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came for ${silence / 1000} s`)), silence);
  });
  try {
    return await Promise.race([read, asleep]);
  } finally {
    clearTimeout(timer);
  }
}
