import { CancellationScope, condition, getExternalWorkflowHandle, isCancellation } from '@temporalio/workflow';
import type { GroupPlan } from '../activities/group-plan.ts';
import type { Rollout, TakeInput } from '../activities/plan-groups.ts';
import { store, waiting } from './activities.ts';
import { cutSignal, staleSignal, type GroupEnd } from './messages.ts';
import { startGroup } from './run-groups.ts';

/** A signal may be lost with a group's workflow, and what is written in the store not: it is asked again after so long. */
const LOOK_AGAIN_MS = 60_000;
/** After the deadline the trials that were cut are still verified. */
const AFTERMATH_MS = 600_000;

/** The groups that a run has under way: those of its iteration, and those that run on from earlier ones. */
export class Rollouts {
  readonly running = new Map<string, GroupPlan>();
  readonly #take: TakeInput;
  readonly #started = new Set<string>();
  readonly #outlived = new Set<string>();
  #isDirty = true;

  constructor(take: TakeInput) {
    this.#take = take;
  }

  ended({ id }: GroupEnd): void {
    this.running.delete(id);
    this.#isDirty = true;
  }

  /**
   * Keeps as many groups running as rule 10 allows until the step may be made, or the deadline: then what this step needs is cut and
   * taken as it is. `reopen`: trials that nobody finished are tried again.
   */
  async untilReady({ reopen, seconds, onChange, mayStart }: { reopen: boolean; seconds: number; onChange: (rollout: Rollout) => void; mayStart: () => Promise<void> }): Promise<void> {
    const deadline = Date.now() + seconds * 1000;
    let isCut = false;
    for (let again = reopen; ; again = false) {
      await mayStart();
      const rollout = await this.#look(again);
      onChange(rollout);
      if (rollout.isReady) return;
      const now = Date.now();
      if (now >= deadline && !isCut) {
        isCut = true;
        await Promise.all([...this.running.keys()].map((id) => getExternalWorkflowHandle(id).signal(cutSignal).catch(() => {})));
      }
      if (now >= deadline + AFTERMATH_MS) return;
      await condition(() => this.#isDirty, Math.min(LOOK_AGAIN_MS, Math.max(1000, deadline - now)));
    }
  }

  async #look(reopen: boolean): Promise<Rollout> {
    this.#isDirty = false;
    const rollout = await store.planGroups({ ...this.#take, reopen });
    if (reopen) this.#started.clear();
    this.running.clear();
    for (const id of rollout.outlived) this.#outlived.add(id);
    for (const plan of rollout.open) {
      this.running.set(plan.id, plan);
      if (!this.#started.has(plan.id)) this.#start(plan);
    }
    await Promise.all(rollout.stale.map(({ id, members }) => getExternalWorkflowHandle(id).signal(staleSignal, { members }).catch(() => {})));
    return rollout;
  }

  #start(plan: GroupPlan): void {
    this.#started.add(plan.id);
    void this.#follow(plan);
  }

  async #follow(plan: GroupPlan): Promise<void> {
    try {
      // One that an earlier execution started is no child of this one: its end is a signal.
      if (await startGroup(plan)) this.ended({ id: plan.id, outcomes: [] });
    } catch {
      // Its row stays open: the deadline ends the wait for it.
      this.#isDirty = true;
    }
  }

  /** Ends all that runs: what this execution started is cancelled with its scope, the rest is told to. Bounded: hosts may be lost. */
  async cancelAll(): Promise<void> {
    const ids = [...this.running.keys()];
    const all = new Set([...ids, ...this.#started, ...this.#outlived]);
    await Promise.all([...all].map((id) => getExternalWorkflowHandle(id).cancel().catch(() => {})));
    try {
      await CancellationScope.withTimeout(60_000, () => Promise.all(ids.map((id) => waiting('60s').awaitGroup({ id }))));
    } catch (error) {
      if (!isCancellation(error)) return;
    }
  }
}
