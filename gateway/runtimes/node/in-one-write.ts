import type { Writable } from 'node:stream';

/**
 * Returns `send`, but what it sends over `stream` within one turn of the event loop goes out in one write. The tokens of many streams come
 * in one turn, and a write for each costs more than the rest of a frame's way.
 */
export function inOneWrite<M>(stream: Writable, send: (message: M) => void): (message: M) => void {
  let isCorked = false;
  return (message) => {
    if (!isCorked) {
      isCorked = true;
      stream.cork();
      setImmediate(() => {
        isCorked = false;
        stream.uncork();
      });
    }
    send(message);
  };
}
