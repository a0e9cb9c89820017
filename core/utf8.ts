import { isUtf8 } from 'node:buffer';
import { readFile } from 'node:fs/promises';
import { TrialgateError } from './errors.ts';

/**
 * Returns the text of a user's bytes. Replacing what is no UTF-8, as Node does by itself, would change a prompt or a program without a word.
 * @param firstLine the number of the line with which the bytes begin, for the error
 * @throws TrialgateError `bad_input` that names the file, the line and the column
 */
export function decodeUtf8(bytes: Uint8Array, file: string, firstLine = 1): string {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (isUtf8(buffer)) return buffer.toString('utf8');
  let [line, start] = [firstLine, 0];
  for (let end = buffer.indexOf(10); end >= 0 && isUtf8(buffer.subarray(start, end)); end = buffer.indexOf(10, start)) {
    start = end + 1;
    line += 1;
  }
  throw new TrialgateError(
    'bad_input',
    `${file}:${line}:${columnOfFault(buffer.subarray(start))}: not UTF-8: save the file in this encoding (\`iconv -f latin1 -t utf-8\`, if it is Latin-1)`,
  );
}

/** Reads a user's file. @throws TrialgateError as `decodeUtf8`; the system's error for a file that cannot be read */
export const readUtf8 = async (file: string): Promise<string> => decodeUtf8(await readFile(file), file);

/** Returns the column, from 1, of the first character that is not written as UTF-8 is. */
function columnOfFault(line: Buffer): number {
  let [column, at] = [1, 0];
  for (const character of line.toString('utf8')) {
    const written = Buffer.from(character);
    if (!written.equals(line.subarray(at, at + written.length))) break;
    at += written.length;
    column += 1;
  }
  return column;
}
