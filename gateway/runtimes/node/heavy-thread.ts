import { readdir } from 'node:fs/promises';
import { constants, getPriority, setPriority } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import type { LogFields } from '../../../core/log.ts';
import { startGateway } from './start-gateway.ts';
import type { Snapshot } from '../../calls/counters.ts';
import type { ThreadOptions } from './heavy-lane.ts';
import { LaneEnd } from './lane-end.ts';

/** A message to the thread. */
export type Order = { counters: number } | { delivered: string; isWhole: boolean } | { close: true };
/** A message from the thread. `log` has one line for each failure. */
export type Report = { port: number } | { log: string; fields: LogFields } | { counters: number; snapshot: Snapshot };

/** How much lower the thread's priority is than that of the thread that answers all other requests. */
const NICE = 10;

/** Serves heavy requests until it is told to close. It is a gateway of its own that only this process's other thread can reach. */
export async function runHeavyThread(): Promise<void> {
  const { options, token }: ThreadOptions = workerData;
  const report = (what: Report) => parentPort?.postMessage(what);
  await lowerPriority();
  const end = new LaneEnd(token);
  const gateway = await startGateway({
    ...options,
    host: '127.0.0.1',
    port: 0,
    lane: end,
    log: (log, fields = {}) => report({ log, fields }),
  });
  parentPort?.on('message', (order: Order) => {
    if ('counters' in order) report({ counters: order.counters, snapshot: gateway.snapshot() });
    else if ('delivered' in order) end.tell(order.delivered, order.isWhole);
    else void gateway.close().finally(() => process.exit());
  });
  report({ port: Number(new URL(gateway.url).port) });
}

/**
 * Lowers the priority of all threads of the process except the first. V8's helpers collect garbage and libuv's decompress bodies, mostly
 * for this thread; at the first thread's priority they take up to half of a small machine's processors from all other calls. Only Linux
 * sets the priority of a single thread; elsewhere this would lower the whole gateway's.
 */
async function lowerPriority(): Promise<void> {
  if (process.platform !== 'linux') return;
  const nice = Math.min(constants.priority.PRIORITY_LOW, getPriority() + NICE);
  setPriority(nice);
  // This call makes libuv start its helper threads, so that they are listed.
  for (const thread of await readdir('/proc/self/task')) {
    try {
      if (Number(thread) !== process.pid) setPriority(Number(thread), nice);
    } catch {
      // The thread ended meanwhile.
    }
  }
}
