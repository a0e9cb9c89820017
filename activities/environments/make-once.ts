import { randomUUID } from 'node:crypto';
import { mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { awaitLock } from '../../core/lock.ts';
import { raceAbort } from '../../core/race-abort.ts';

export type MakeOptions = {
  signal: AbortSignal;
  /** Is told what is made, and how long it took. */
  report?: (line: string) => void;
};

/** The lines that `report` gets: the one before, and the one after, to which the time is added. */
export type Lines = { before: string; after: string };

/** Sets the folder's time to now, because `gc` removes folders that nothing used for 30 days. Returns false if there is no folder. */
async function markUsed(folder: string): Promise<boolean> {
  const now = new Date();
  return utimes(folder, now, now).then(
    () => true,
    () => false,
  );
}

type UnderWay = { done: Promise<string>; waiters: number; stop: AbortController };

/** The folders that this process is making, so that many trials that begin together wait for one. */
const underWay = new Map<string, UnderWay>();

/**
 * Returns the folder, made by `make` unless it exists. It is made under another name and renamed when it is complete, so that one that was
 * interrupted is never seen half made. Other processes of this host wait for the one that makes it. It goes on while somebody waits for it.
 */
export async function makeOnce(
  folder: string,
  lines: Lines,
  { signal, report = console.error }: MakeOptions,
  make: (draft: string, signal: AbortSignal) => Promise<void>,
): Promise<string> {
  if (await markUsed(folder)) return folder;
  const known = underWay.get(folder) ?? begin();
  known.waiters += 1;
  try {
    return await raceAbort(known.done, signal, () =>
      signal.reason instanceof Error ? signal.reason : new Error('cancelled'),
    );
  } finally {
    known.waiters -= 1;
    // Nobody waits for it any more, so the next caller must not wait for its end.
    if (known.waiters === 0) forget(folder, known).stop.abort();
  }

  function begin(): UnderWay {
    const stop = new AbortController();
    const done = makeAlone(stop.signal);
    const started = { done, waiters: 0, stop };
    done.catch(() => {}).finally(() => forget(folder, started));
    underWay.set(folder, started);
    return started;
  }

  async function makeAlone(stopped: AbortSignal): Promise<string> {
    const lock = await awaitLock(folder, 'make', stopped);
    try {
      if (await markUsed(folder)) return folder;
      await mkdir(dirname(folder), { recursive: true });
      await removeDrafts(folder);
      return await makeAndRename(stopped);
    } finally {
      await lock.release();
    }
  }

  async function makeAndRename(stopped: AbortSignal): Promise<string> {
    const draft = `${folder}.${randomUUID().slice(0, 8)}${DRAFT}`;
    const started = performance.now();
    report(lines.before);
    await mkdir(draft);
    try {
      await make(draft, stopped);
      // A worker of another host that shares the folder may have been faster.
      await rename(draft, folder).catch(async (error: unknown) => {
        if (!(await stat(folder).catch(() => null))) throw error;
      });
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
    report(`${lines.after} in ${((performance.now() - started) / 1000).toFixed(0)} s`);
    return folder;
  }
}

function forget(folder: string, making: UnderWay): UnderWay {
  if (underWay.get(folder) === making) underWay.delete(folder);
  return making;
}

const DRAFT = '.partial';

/** Removes what processes that were killed left half made. The caller has the lock. */
async function removeDrafts(folder: string): Promise<void> {
  for (const name of await readdir(dirname(folder)))
    if (name.startsWith(`${basename(folder)}.`) && name.endsWith(DRAFT))
      await rm(join(dirname(folder), name), { recursive: true, force: true });
}
