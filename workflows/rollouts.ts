import { CancellationScope, condition, getExternalWorkflowHandle, sleep } from '@temporalio/workflow';
import type { GroupPlan } from '../activities/rollout/group-plan.ts';
import type { Rollout, TakeInput } from '../activities/rollout/plan-groups.ts';
import { store, waiting } from './activities.ts';
import { groupPollInterval } from './group-poll-interval.ts';
import { cutSignal, staleSignal } from './messages.ts';
import { runGroup } from './run-groups.ts';

/** A signal is lost when a group's workflow is lost, but the store's rows are not, so they are polled at least this often. */
const POLL_AGAIN_MS = 60_000;
/** The number of times that a group whose workflow fails is started. */
const TRIES = 3;
/** The time after the deadline in which cut trials are still verified. */
const AFTERMATH_MS = 600_000;

type WaitOptions = {
  reopen: boolean;
  seconds: number;
  onChange: (rollout: Rollout, until: number) => void;
  whilePaused: () => Promise<number>;
  extendedUntil: () => number;
};

/** The groups that a run has under way: those of its iteration, and those that still run from earlier ones. */
export class Rollouts {
  readonly #take: TakeInput;
  /** The groups that the store holds open. */
  #running = new Set<string>();
  /** The plans by which the groups are started. Empty until the first poll. */
  readonly #plans = new Map<string, GroupPlan>();
  /** The groups whose workflow this execution follows to its end. */
  readonly #followed = new Map<string, Promise<void>>();
  readonly #failures = new Map<string, number>();
  readonly #outlived = new Set<string>();
  /** The groups whose workflow has closed since the last poll began. That poll may have read them as open. */
  readonly #closedSincePoll = new Set<string>();
  #isDirty = true;
  #polls = 0;
  #hasPolled = false;

  constructor(take: TakeInput) {
    this.#take = take;
  }

  ended(id: string): void {
    this.#running.delete(id);
    this.pollSoon();
  }

  /** Polls again soon, because other groups may start now. */
  pollSoon(): void {
    this.#isDirty = true;
  }

  /**
   * Keeps as many groups running as may run until the step can be made, or until the deadline: then no group starts, the groups that only
   * this step could use are cut, and the step uses what is there. `reopen` runs unfinished trials again. A pause moves the deadline, and
   * so does an extension, to `extendedUntil`.
   */
  async untilReady({ reopen, seconds, onChange, whilePaused, extendedUntil }: WaitOptions): Promise<void> {
    let deadline = Date.now() + seconds * 1000;
    let isOver = false;
    for (let again = reopen; ; again = false) {
      deadline += await whilePaused();
      const polledAt = Date.now();
      const rollout = await this.#poll(again, isOver);
      if (!isOver) deadline = Math.max(deadline, extendedUntil());
      onChange(rollout, deadline);
      if (rollout.isReady) return;
      const now = Date.now();
      if (now >= deadline && !isOver) {
        isOver = true;
        const cut = rollout.last.length > 0 ? rollout.last : rollout.open;
        await Promise.all(
          cut.map((id) =>
            getExternalWorkflowHandle(id)
              .signal(cutSignal)
              .catch(() => {}),
          ),
        );
      }
      if (now >= deadline + AFTERMATH_MS) return;
      await condition(
        () => this.#isDirty,
        isOver ? POLL_AGAIN_MS : Math.min(POLL_AGAIN_MS, Math.max(1000, deadline - now)),
      );
      // Many trials may end at about the same time: one poll finds them together.
      const next = Math.min(polledAt + groupPollInterval(this.#polls), isOver ? Infinity : deadline);
      const early = next - Date.now();
      if (early > 0) await sleep(early);
    }
  }

  async #poll(reopen: boolean, isOver: boolean): Promise<Rollout> {
    this.#isDirty = false;
    this.#closedSincePoll.clear();
    this.#polls++;
    const rollout = await store.planGroups({ ...this.#take, reopen, isOver, known: this.#hasPolled && !reopen });
    this.#hasPolled = true;
    if (reopen) for (const known of [this.#failures, this.#plans]) known.clear();
    this.#running = new Set(rollout.open);
    for (const id of rollout.outlived) this.#outlived.add(id);
    for (const plan of rollout.plans) this.#plans.set(plan.id, plan);
    for (const id of rollout.open) this.#follow(id);
    await Promise.all(
      rollout.stale.map(({ id, trialIndexes }) =>
        getExternalWorkflowHandle(id)
          .signal(staleSignal, { trialIndexes })
          .catch(() => {}),
      ),
    );
    return rollout;
  }

  /** Runs an open group and follows its workflow to its end. If the store still holds the group open after that, the next poll runs it again. */
  #follow(id: string): void {
    const plan = this.#plans.get(id);
    // A group whose workflow keeps failing leaves its row open; the iteration's deadline ends the wait for it.
    if (!plan || this.#followed.has(id) || (this.#failures.get(id) ?? 0) >= TRIES) return;
    // The next poll, which is due at once, tells whether the store still holds the group open.
    if (this.#closedSincePoll.has(id)) return;
    const failed = (): void => void this.#failures.set(id, (this.#failures.get(id) ?? 0) + 1);
    const following = runGroup(plan)
      .catch(failed)
      .finally(() => {
        this.#followed.delete(id);
        this.#closedSincePoll.add(id);
        this.ended(id);
      });
    this.#followed.set(id, following);
  }

  /** Waits until cancelled groups have closed, because a resumed run starts them again under the same ids. */
  async closed(): Promise<void> {
    await CancellationScope.nonCancellable(() => Promise.all(this.#followed.values()));
  }

  /** Returns groups that earlier executions started, of which a poll lists only those that the step may need. */
  async #others(): Promise<string[]> {
    return waiting('60s')
      .listRunningGroups({ runId: this.#take.runId })
      .catch(() => []);
  }

  /**
   * Ends all groups that run: those that this execution started are cancelled with its scope, the others are asked to cancel. The wait is
   * bounded because hosts may be lost.
   */
  async cancelAll(): Promise<void> {
    const ids = [...new Set([...this.#running, ...(await this.#others())])];
    const all = new Set([...ids, ...this.#plans.keys(), ...this.#outlived]);
    await Promise.all(
      [...all].map((id) =>
        getExternalWorkflowHandle(id)
          .cancel()
          .catch(() => {}),
      ),
    );
    const ended = () =>
      Promise.all([...ids.map((id) => waiting('60s').awaitGroup({ id })), ...this.#followed.values()]);
    await CancellationScope.withTimeout(60_000, ended).catch(() => {});
  }
}
