import * as zlib from 'node:zlib';
import { Failure } from './failure.ts';
import { badRequest } from './json.ts';

type Decode = (bytes: Uint8Array, options: { maxOutputLength: number }, done: (error: Error | null, decoded: Uint8Array<ArrayBuffer>) => void) => void;

/** Not every runtime supports all of these codings. */
const DECODERS: Record<string, Decode | undefined> = { gzip: zlib.gunzip, 'x-gzip': zlib.gunzip, deflate: zlib.inflate, br: zlib.brotliDecompress, zstd: zlib.zstdDecompress };
const SERVED = Object.entries(DECODERS).flatMap(([name, decode]) => (decode ? [name] : []));

/** Returns the coding of a request's body; null when the body is not encoded. Throws a 415 for a coding that cannot be decoded. */
export function codingOf({ headers }: Request): string | null {
  const coding = headers.get('content-encoding')?.trim().toLowerCase() ?? '';
  if (coding === '' || coding === 'identity') return null;
  if (SERVED.includes(coding)) return coding;
  const message = `content-encoding: ${JSON.stringify(coding.slice(0, 100))} cannot be decoded here: send the body as it is, or as ${SERVED.join(', ')}`;
  throw new Failure(415, 'unsupported_encoding', message, { retryable: false, headers: { 'accept-encoding': SERVED.join(', ') } });
}

/** Returns the decoded body. Rejects when it has more than `maxBytes`. */
export function decodeBody(bytes: Uint8Array, coding: string, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  return new Promise((resolve, reject) => {
    DECODERS[coding]?.(bytes, { maxOutputLength: maxBytes }, (error, decoded) => {
      if (!error) return resolve(decoded);
      // The error messages of Node and of workerd.
      const isTooLarge = ('code' in error && error.code === 'ERR_BUFFER_TOO_LARGE') || error.message === 'Memory limit exceeded';
      reject(isTooLarge ? tooLarge(maxBytes) : badRequest(`the body is not ${coding}: ${error.message}`));
    });
  });
}

export const tooLarge = (maxBytes: number) => new Failure(413, 'request_too_large', `the body is larger than ${maxBytes} bytes, decoded (setting max_body_bytes)`, { retryable: false });
