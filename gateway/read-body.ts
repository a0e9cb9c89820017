import { Failure } from './failure.ts';

const LARGE = 2 ** 20;

/** Whether a body is worth a question before it is read, or does not say how long it is. */
export const isLarge = ({ headers }: Request): boolean => Number(headers.get('content-length') ?? Infinity) > LARGE;

/** A request's body, as long as it is within the limit. */
export async function readBody(request: Request, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const tooLarge = () =>
    new Failure(413, 'request_too_large', `the body is larger than ${maxBytes} bytes`, { retryable: false });
  const announced = request.headers.get('content-length');
  if (Number(announced ?? 0) > maxBytes) throw tooLarge();
  // HTTP holds a sender to the length that it announced.
  if (announced !== null) return new Uint8Array(await request.arrayBuffer());
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for await (const part of request.body ?? []) {
    size += part.byteLength;
    if (size > maxBytes) throw tooLarge();
    parts.push(part);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
