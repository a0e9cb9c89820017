import type { CallRecord } from '../../store/queries/record-calls.ts';
import { isTransient } from '../../core/transient.ts';
import type { Log, LogFields } from '../../core/log.ts';
import { storeUnavailable } from '../failure.ts';
import { sleep } from '../../core/sleep.ts';
import type { Recorder } from './recorder.ts';

export type GroupCommitOptions = {
  /** Commits all calls or none. Returns the ids that it refused. Safe to repeat. */
  commit: (calls: CallRecord[]) => Promise<Set<string>>;
  /** Marks calls as failed that were committed after their agents were told of a failure. */
  retract: (ids: string[]) => Promise<void>;
  /** Lets replies that have arrived be handled first, so that they join the group: larger groups cost PostgreSQL less for each call. */
  nextTurn?: () => Promise<unknown>;
  waitMs: number;
  log: Log;
  maxQueued?: number;
  /** The bytes that calls may hold in memory until they are settled. A single call is admitted, however large. */
  maxHeldBytes?: number;
  maxGroup?: number;
  /** The bytes of one commit. A single call is committed, however large. */
  maxGroupBytes?: number;
};

type Entry = {
  call: CallRecord;
  runId: string | null;
  settle: (verdict: 'recorded' | 'refused' | Error) => void;
  late: boolean;
  tried: boolean;
};

const PAUSE_MS = 100;

/** Commits calls in groups: those that arrive during a commit share the next one. */
export class GroupCommit implements Recorder {
  readonly #options: GroupCommitOptions;
  readonly #queue: Entry[] = [];
  readonly #orphans: string[] = [];
  readonly #kept = new Set<Promise<unknown>>();
  #heldBytes = 0;
  #running: Promise<void> | null = null;

  constructor(options: GroupCommitOptions) {
    this.#options = options;
  }

  record(call: CallRecord, runId: string | null = null): Promise<'recorded' | 'refused'> {
    const { waitMs, maxQueued = 4096, maxHeldBytes = 256 * 2 ** 20 } = this.#options;
    if (this.#queue.length >= maxQueued || this.#heldBytes >= maxHeldBytes) return Promise.reject(storeUnavailable());
    let held = call.size ?? 0;
    this.#heldBytes += held;
    const { promise, resolve, reject } = Promise.withResolvers<'recorded' | 'refused'>();
    const entry: Entry = {
      call,
      runId,
      late: false,
      tried: false,
      settle: (verdict) => {
        clearTimeout(timer);
        this.#heldBytes -= held;
        held = 0;
        if (verdict instanceof Error) reject(verdict);
        else resolve(verdict);
      },
    };
    const timer = setTimeout(() => this.#expire(entry), waitMs);
    this.#queue.push(entry);
    this.#running ??= this.#run();
    return promise;
  }

  async close(): Promise<void> {
    while (this.#running || this.#kept.size > 0) {
      await this.#running;
      await Promise.allSettled(this.#kept);
    }
  }

  keep(work: Promise<unknown>): void {
    this.#kept.add(work);
    const forget = () => void this.#kept.delete(work);
    work.then(forget, forget);
  }

  #expire(entry: Entry): void {
    entry.late = true;
    const queued = this.#queue.indexOf(entry);
    if (queued >= 0) {
      this.#queue.splice(queued, 1);
      if (entry.tried) this.#orphans.push(entry.call.id);
    }
    const { call, runId } = entry;
    this.#options.log(`call ${call.id} of trial ${call.trialId} could not be recorded in time`, aboutLost(call, runId));
    entry.settle(storeUnavailable());
  }

  async #run(): Promise<void> {
    try {
      while (this.#queue.length > 0 || this.#orphans.length > 0) {
        await this.#retractOrphans();
        await this.#options.nextTurn?.();
        const group = this.#nextGroup();
        if (group.length > 0) await this.#commit(group);
      }
    } finally {
      this.#running = null;
    }
  }

  #nextGroup(): Entry[] {
    const { maxGroup = 128, maxGroupBytes = 32 * 2 ** 20 } = this.#options;
    let [bytes, size] = [0, 0];
    for (const { call } of this.#queue) {
      bytes += call.size ?? 0;
      if (size === maxGroup || (size > 0 && bytes > maxGroupBytes)) break;
      size += 1;
    }
    return this.#queue.splice(0, size);
  }

  /** Tries until each entry is settled: committed, refused, failed for a reason of its own, or late. */
  async #commit(group: Entry[]): Promise<void> {
    for (const entry of group) entry.tried = true;
    try {
      const refused = await this.#options.commit(group.map((entry) => entry.call));
      for (const entry of group) {
        if (!entry.late) entry.settle(refused.has(entry.call.id) ? 'refused' : 'recorded');
        else if (!refused.has(entry.call.id)) this.#orphans.push(entry.call.id);
      }
    } catch (error) {
      if (isTransient(error)) {
        // A connection lost during a commit leaves its result unknown, so late calls may have been committed.
        for (const entry of group) if (entry.late) this.#orphans.push(entry.call.id);
        this.#queue.unshift(...group.filter((entry) => !entry.late));
        await sleep(PAUSE_MS);
      } else if (group.length > 1) {
        for (const entry of group) await this.#commit([entry]);
      } else {
        for (const { call, runId, settle } of group) {
          this.#options.log(
            `call ${call.id} of trial ${call.trialId} cannot be recorded: ${String(error)}`,
            aboutLost(call, runId),
          );
          settle(error instanceof Error ? error : new Error(String(error)));
        }
      }
    }
  }

  async #retractOrphans(): Promise<void> {
    const ids = this.#orphans.splice(0);
    if (ids.length === 0) return;
    try {
      await this.#options.retract(ids);
    } catch (error) {
      if (isTransient(error)) {
        this.#orphans.push(...ids);
        await sleep(PAUSE_MS);
      } else {
        this.#options.log(
          `calls ${ids.join(', ')} count as completed although their agents got an error, because they could not be retracted: ${String(error)}`,
          { level: 'error' },
        );
      }
    }
  }
}

/** What the log says of a call that was answered, or would have been, and has no record. */
export const aboutLost = ({ id, trialId }: CallRecord, runId: string | null): LogFields => ({
  level: 'error',
  run_id: runId ?? undefined,
  trial_id: trialId,
  call_id: id,
});
