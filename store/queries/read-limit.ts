/** The amount of stored JSON that a reader accepts. `onRead` receives each JSON before it is parsed, and may throw. */
export type ReadLimit = { maxBytes: number; onRead: (json: Uint8Array) => void };

export const NO_LIMIT: ReadLimit = { maxBytes: Number.MAX_SAFE_INTEGER, onRead: () => {} };

/** Thrown when the stored JSON is longer than its reader accepts. */
export class TooMuchToRead extends Error {
  constructor(bytes: number) {
    super(`${bytes} bytes of recorded calls are more than their reader accepts`);
  }
}
