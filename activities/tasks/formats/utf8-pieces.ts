import { createReadStream } from 'node:fs';
import { decodeUtf8 } from '../../../core/utf8.ts';

const LINE_END = 10;

/**
 * Reads a text file in pieces of whole lines.
 * @throws TrialgateError `bad_input` that names the file, line and column of what is not UTF-8
 */
export async function* utf8Pieces(file: string): AsyncGenerator<string> {
  let line = 1;
  let rest: Buffer[] = [];
  const decoded = (): string => {
    const bytes = Buffer.concat(rest);
    const text = decodeUtf8(bytes, file, line);
    for (const byte of bytes) if (byte === LINE_END) line += 1;
    return text;
  };
  for await (const chunk of createReadStream(file)) {
    const bytes: Buffer = chunk;
    const end = bytes.lastIndexOf(LINE_END) + 1;
    if (end === 0) {
      rest.push(bytes);
      continue;
    }
    rest.push(bytes.subarray(0, end));
    yield decoded();
    rest = [bytes.subarray(end)];
  }
  yield decoded();
}
