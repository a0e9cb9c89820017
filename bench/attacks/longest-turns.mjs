/**
 * Loaded into a gateway by `--import`. Writes the longest turn of its first thread's event loop, in milliseconds of processor time, to the
 * file that the URL names: one line for each quarter of a second, with the time of its end.
 */
import { appendFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';

const file = new URL(import.meta.url).searchParams.get('file');
if (isMainThread && file) {
  let [before, longest, written] = [used(), 0, Date.now()];
  setInterval(() => {
    const now = used();
    longest = Math.max(longest, now - before);
    before = now;
    if (Date.now() - written < 250) return;
    written = Date.now();
    appendFileSync(file, `${written} ${longest}\n`);
    longest = 0;
  }, 1).unref();
}

function used() {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
