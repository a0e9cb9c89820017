import * as zlib from 'node:zlib';
import { Failure } from '../../failure.ts';
import { badRequest } from '../../json.ts';
import { checkBounds, JsonBounds, type JsonLimits } from './json-bounds.ts';

/** `nodes` is the count of `JsonBounds`, or 0 for a small body, which is not counted. */
export type Body = { bytes: Uint8Array<ArrayBuffer>; nodes: number };
/** Counts bytes before they are kept. Throws when there are too many. */
export type Hold = (bytes: number) => void;
export type BodyLimits = JsonLimits & { maxBodyBytes: number };

const LARGE = 2 ** 20;
/**
 * The bytes that each value or key counts in addition to its own. It takes some 600 bytes of memory while its call is prepared, and fewer
 * afterwards.
 */
const NODE_BYTES = 128;

/** True when a body is so large that it is checked first, or does not announce its decoded length. */
export const isLarge = ({ headers }: Request): boolean =>
  headers.has('content-encoding') || Number(headers.get('content-length') ?? Infinity) > LARGE;

/** Refuses a body whose announced length is already too large. */
export function checkAnnounced({ headers }: Request, { maxBodyBytes }: Pick<BodyLimits, 'maxBodyBytes'>): void {
  if (Number(headers.get('content-length') ?? 0) > maxBodyBytes) throw tooLarge(maxBodyBytes);
}

/** Reads and decodes a request's body within the limits. Refuses too many nodes or levels before anything is parsed. */
export async function readBody(request: Request, limits: BodyLimits, hold: Hold = () => {}): Promise<Body> {
  const { maxBodyBytes } = limits;
  const coding = codingOf(request);
  const announced = request.headers.get('content-length');
  checkAnnounced(request, limits);
  if (coding === null && isLarge(request)) return readLarge(request, limits, hold);
  // HTTP holds a sender to its announced length.
  hold(Number(announced ?? 0));
  const sent =
    announced === null
      ? await readUnannounced(request, maxBodyBytes, hold)
      : new Uint8Array(await request.arrayBuffer());
  const body = coding === null ? sent : await decodeBody(sent, coding, maxBodyBytes);
  if (coding !== null) hold(body.byteLength);
  const nodes = checkBounds(body, limits);
  hold(nodes * NODE_BYTES);
  return { bytes: body, nodes };
}

async function readUnannounced(request: Request, maxBodyBytes: number, hold: Hold): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for await (const part of partsUpTo(request, maxBodyBytes)) {
    hold(part.byteLength);
    parts.push(part);
  }
  return joined(parts);
}

/**
 * The rest of a refused body of at most this length is read and dropped. A connection that closes with unread bytes is reset, and then its
 * client may lose the answer (RFC 9112, 9.6).
 */
const DROPPED_BYTES = 4 * LARGE;

/**
 * Counts each part as it arrives, so that no single count delays other requests. Of a body that exceeds a limit it keeps nothing more, and
 * of a long one it reads nothing more.
 */
async function readLarge(request: Request, limits: BodyLimits, hold: Hold): Promise<Body> {
  const bounds = new JsonBounds(limits);
  const parts: Uint8Array<ArrayBuffer>[] = [];
  const isDropped = Number(request.headers.get('content-length') ?? Infinity) <= DROPPED_BYTES;
  let refusal: { error: unknown } | null = null;
  for await (const part of partsUpTo(request, limits.maxBodyBytes)) {
    if (refusal) continue;
    try {
      const before = bounds.nodes;
      bounds.add(part);
      hold(part.byteLength + (bounds.nodes - before) * NODE_BYTES);
      parts.push(part);
    } catch (error) {
      if (!isDropped) throw error;
      refusal = { error };
    }
  }
  if (refusal) throw refusal.error;
  return { bytes: await joined(parts), nodes: bounds.nodes };
}

async function* partsUpTo(request: Request, maxBodyBytes: number): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let size = 0;
  for await (const part of request.body ?? []) {
    size += part.byteLength;
    if (size > maxBodyBytes) throw tooLarge(maxBodyBytes);
    yield part;
  }
}

const joined = async (parts: Uint8Array<ArrayBuffer>[]): Promise<Uint8Array<ArrayBuffer>> =>
  new Uint8Array(await new Blob(parts).arrayBuffer());

type Decode = (
  bytes: Uint8Array,
  options: { maxOutputLength: number },
  done: (error: Error | null, decoded: Uint8Array<ArrayBuffer>) => void,
) => void;

/** Not every runtime supports all of these codings. */
const DECODERS: Record<string, Decode | undefined> = {
  gzip: zlib.gunzip,
  'x-gzip': zlib.gunzip,
  deflate: zlib.inflate,
  br: zlib.brotliDecompress,
  zstd: zlib.zstdDecompress,
};
const SERVED = Object.entries(DECODERS).flatMap(([name, decode]) => (decode ? [name] : []));

/** Returns the coding of a request's body; null when the body is not encoded. Throws a 415 for a coding that cannot be decoded. */
function codingOf({ headers }: Request): string | null {
  const coding = headers.get('content-encoding')?.trim().toLowerCase() ?? '';
  if (coding === '' || coding === 'identity') return null;
  if (SERVED.includes(coding)) return coding;
  const message = `content-encoding: ${JSON.stringify(coding.slice(0, 100))} cannot be decoded here: send the body as it is, or as ${SERVED.join(', ')}`;
  throw new Failure(415, 'unsupported_encoding', message, {
    retryable: false,
    headers: { 'accept-encoding': SERVED.join(', ') },
  });
}

/** Returns the decoded body. Rejects when it has more than `maxBytes`. */
function decodeBody(bytes: Uint8Array, coding: string, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  return new Promise((resolve, reject) => {
    DECODERS[coding]?.(bytes, { maxOutputLength: maxBytes }, (error, decoded) => {
      if (!error) return resolve(decoded);
      // The error messages of Node and of workerd.
      const isTooLarge =
        ('code' in error && error.code === 'ERR_BUFFER_TOO_LARGE') || error.message === 'Memory limit exceeded';
      reject(isTooLarge ? tooLarge(maxBytes) : badRequest(`the body is not ${coding}: ${error.message}`));
    });
  });
}

const tooLarge = (maxBytes: number) =>
  new Failure(413, 'request_too_large', `the body is larger than ${maxBytes} bytes, decoded (setting max_body_bytes)`, {
    retryable: false,
  });
