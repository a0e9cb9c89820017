import { setPriority } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import { startGateway } from '../node.ts';
import type { Snapshot } from '../counters.ts';
import type { ThreadOptions } from './heavy-lane.ts';
import { LaneEnd } from './lane-end.ts';

/** A message to the thread. */
export type Order = { counters: number } | { delivered: string; isWhole: boolean } | { close: true };
/** A message from the thread. `log`: one line for each failure. */
export type Report = { port: number } | { log: string } | { counters: number; snapshot: Snapshot };

/** A lower priority than the thread that answers all other requests. */
const NICE = 10;

/** Serves heavy requests until it is told to close. It is a separate gateway that only this process's other thread can reach. */
export async function runHeavyThread(): Promise<void> {
  const { options, token }: ThreadOptions = workerData;
  const report = (what: Report) => parentPort?.postMessage(what);
  // Only Linux sets the priority of the calling thread alone; elsewhere this would be the whole gateway's.
  if (process.platform === 'linux') setPriority(0, NICE);
  const end = new LaneEnd(token);
  const gateway = await startGateway({ ...options, host: '127.0.0.1', port: 0, lane: end, log: (log) => report({ log }) });
  parentPort?.on('message', (order: Order) => {
    if ('counters' in order) report({ counters: order.counters, snapshot: gateway.snapshot() });
    else if ('delivered' in order) end.tell(order.delivered, order.isWhole);
    else void gateway.close().finally(() => process.exit());
  });
  report({ port: Number(new URL(gateway.url).port) });
}
