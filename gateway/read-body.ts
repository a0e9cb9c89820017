import { codingOf, decodeBody, tooLarge } from './decode-body.ts';

const LARGE = 2 ** 20;

/** Whether a body is worth a question before it is read, or does not say how long it is, decoded. */
export const isLarge = ({ headers }: Request): boolean => headers.has('content-encoding') || Number(headers.get('content-length') ?? Infinity) > LARGE;

/** A request's body, decoded, as long as it is within the limit. */
export async function readBody(request: Request, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const coding = codingOf(request);
  const bytes = await readSent(request, maxBytes);
  return coding === null ? bytes : decodeBody(bytes, coding, maxBytes);
}

async function readSent(request: Request, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const announced = request.headers.get('content-length');
  if (Number(announced ?? 0) > maxBytes) throw tooLarge(maxBytes);
  // HTTP holds a sender to the length that it announced.
  if (announced !== null) return new Uint8Array(await request.arrayBuffer());
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for await (const part of request.body ?? []) {
    size += part.byteLength;
    if (size > maxBytes) throw tooLarge(maxBytes);
    parts.push(part);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
