import type { Readable, Writable } from 'node:stream';

/**
 * Writes all of a stream to another one, as `pipe` does, but only one part for each turn of the event loop, because `pipe` with a fast
 * sender keeps the loop busy for several milliseconds. Returns a function that stops it and leaves the rest unread.
 */
export function passOn(from: Readable, to: Writable): () => void {
  let isStopped = false;
  const goOn = () => void setImmediate(() => isStopped || from.resume());
  const pass = (part: Uint8Array): void => {
    from.pause();
    if (to.write(part)) goOn();
    else to.once('drain', goOn);
  };
  const end = () => void to.end();
  from.on('data', pass).once('end', end);
  return () => {
    isStopped = true;
    from.off('data', pass).off('end', end).pause();
  };
}
