export type EngineRequest = { path: string; body: Buffer };

const HEAD_END = Buffer.from('\r\n\r\n');
const LAST_CHUNK = Buffer.from('\r\n0\r\n\r\n');

/** Takes requests out of a connection's bytes. A chunked body is left as it came: nothing but its text is looked at. */
export class Requests {
  #rest: Buffer | null = null;

  *take(data: Buffer): Generator<EngineRequest> {
    let bytes = this.#rest ? Buffer.concat([this.#rest, data]) : data;
    this.#rest = null;
    while (bytes.length > 0) {
      const headEnd = bytes.indexOf(HEAD_END);
      const end = headEnd < 0 ? -1 : bodyEnd(bytes, headEnd + HEAD_END.length);
      if (end < 0) {
        this.#rest = bytes;
        return;
      }
      const pathAt = bytes.indexOf(32) + 1;
      yield { path: bytes.toString('latin1', pathAt, bytes.indexOf(32, pathAt)), body: bytes.subarray(headEnd + HEAD_END.length, end) };
      bytes = bytes.subarray(end);
    }
  }
}

/** Where the body that begins at `start` ends; -1 when it is not there yet. */
function bodyEnd(bytes: Buffer, start: number): number {
  const head = bytes.toString('latin1', 0, start);
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
  if (length !== undefined) return start + Number(length) <= bytes.length ? start + Number(length) : -1;
  if (!/\r\ntransfer-encoding: *chunked/i.test(head)) return start;
  const last = bytes.indexOf(LAST_CHUNK, start);
  return last < 0 ? -1 : last + LAST_CHUNK.length;
}
