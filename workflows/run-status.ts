import { setCurrentDetails, setHandler, upsertSearchAttributes } from '@temporalio/workflow';
import type { Rollout } from '../activities/rollout/plan-groups.ts';
import type { Outcome } from '../store/tables/trials.ts';
import {
  groupEndedSignal,
  groupMovedSignal,
  phaseSignal,
  statusQuery,
  type GroupEnd,
  type GroupStatus,
  type RunStatusReport,
} from './messages.ts';

/** The status of a run, for its `status` query and for Temporal's own page. */
export class RunStatus {
  readonly report: RunStatusReport;
  /** The groups of the rollout and of the evaluation, which may run side by side. */
  readonly #train = new Map<string, GroupStatus>();
  readonly #evaluation = new Map<string, GroupStatus>();
  /** The outcomes by group. A group whose stragglers go on reports more than once. */
  readonly #outcomes = new Map<string, Outcome[]>();

  constructor(runId: string, onGroupEnd: (id: string) => void, onGroupMove: (until: number) => void) {
    this.report = {
      run: runId,
      phase: 'preparing',
      iteration: 0,
      iterations: 0,
      take: 0,
      policy_version: 0,
      groups_ended: 0,
      groups_total: 0,
      trials: {},
      waits_for: null,
      until: null,
      groups: [],
      reason: null,
      reason_type: null,
    };
    setHandler(statusQuery, () => this.report);
    setHandler(phaseSignal, ({ phase, waitsFor, begun, seconds }) => {
      const isBeside = begun !== undefined && SAMPLING.includes(this.report.phase);
      if (!isBeside) this.enter(phase, waitsFor, seconds);
      if (begun) this.#begin(begun, isBeside, seconds);
    });
    setHandler(groupEndedSignal, (ending) => {
      this.#end(ending);
      onGroupEnd(ending.id);
    });
    setHandler(groupMovedSignal, ({ id, until, kind }) => {
      if (kind === 'train') onGroupMove(Date.parse(until));
      const group = this.#group(id);
      if (group?.state === 'running') group.until = until;
      const isOwn = this.report.phase === (kind === 'train' ? 'rollout' : 'evaluation');
      if (isOwn && this.report.until !== null && this.report.until < until)
        this.waitFor(this.report.waits_for, Date.parse(until));
    });
  }

  /** Enters a phase. `seconds` is the longest time that it waits. */
  enter(phase: string, waitsFor: string | null = null, seconds: number | null = null): void {
    this.report.phase = phase;
    upsertSearchAttributes({ TrialgatePhase: [phase] });
    this.waitFor(waitsFor, waitsFor === null || seconds === null ? null : Date.now() + seconds * 1000);
  }

  waitFor(what: string | null, until: number | null = null): void {
    this.report.waits_for = what;
    this.report.until = until === null ? null : new Date(until).toISOString();
    setCurrentDetails(this.describe());
  }

  /** Takes over a poll's result: the iteration's groups and how far they are. */
  showRollout({ open, progress, plans, eligible, wanted, waitsForLast = 0 }: Rollout, until: number): void {
    // A group that had ended may run again after a resume.
    for (const { id, task, size, openedAt } of plans)
      if (this.#train.get(id)?.state !== 'running') this.#train.set(id, newGroup({ id, task, size }, openedAt));
    const running = new Map(open.map((id, i) => [id, progress[i]]));
    for (const group of this.#train.values()) {
      // The group's own report of its end is newer.
      if (group.state === 'ended') continue;
      const ofGroup = running.get(group.id);
      if (ofGroup) {
        const [waiting, run, ended, deadline] = ofGroup;
        Object.assign(group, {
          trials: { waiting, running: run, ended },
          until: deadline === null ? group.until : isoOf(deadline),
        });
      } else if (!running.has(group.id)) {
        // The group may have reported its end before this poll listed it.
        const reported = this.#outcomes.get(group.id);
        if (reported) group.trials = tally(reported);
        end(group);
      }
    }
    this.#count();
    const waits = [`${wanted} trials for the batch: ${eligible} are there, ${running.size} groups run`];
    if (waitsForLast > 0) waits.push(`${waitsForLast} trials run that only this step can use`);
    const heldOut = [...this.#evaluation.values()].filter(({ state }) => state === 'running').length;
    if (heldOut > 0) waits.push(ofHeldOut(heldOut));
    this.waitFor(waits.join('; '), until);
  }

  /** Adds the groups of an evaluation with their deadline. It runs beside a rollout or instead of one. */
  #begin(begun: { id: string; task: string; size: number }[], isBeside: boolean, seconds?: number): void {
    if (!isBeside) {
      this.#train.clear();
      this.#outcomes.clear();
    }
    const until = seconds === undefined ? null : isoOf(Date.now() + seconds * 1000);
    this.#evaluation.clear();
    for (const group of begun) this.#evaluation.set(group.id, { ...newGroup(group), until });
    this.#count();
    const { waits_for: batch, until: batchUntil } = this.report;
    const atMost = isBeside ? batchUntil : until;
    this.waitFor(
      [...(isBeside && batch !== null ? [batch] : []), ofHeldOut(begun.length)].join('; '),
      atMost === null ? null : Date.parse(atMost),
    );
  }

  #group(id: string): GroupStatus | undefined {
    return this.#train.get(id) ?? this.#evaluation.get(id);
  }

  #count(): void {
    const groups = [...this.#train.values(), ...this.#evaluation.values()];
    const ended = groups.filter(({ state }) => state === 'ended').length;
    Object.assign(this.report, {
      groups,
      groups_total: groups.length,
      groups_ended: ended,
      trials: tally([...this.#outcomes.values()].flat()),
    });
  }

  describe(): string {
    const { phase, iteration, iterations, take, policy_version: version, waits_for: wait, until, reason } = this.report;
    const lines = [`**${phase}**: iteration ${iteration} of ${iterations}, take ${take}, policy ${version}`];
    if (wait !== null) lines.push(`waits for ${wait}${until === null ? '' : `, until ${until}`}`);
    if (reason !== null) lines.push(reason);
    return lines.join('\n\n');
  }

  #end({ id, outcomes }: GroupEnd): void {
    this.#outcomes.set(id, outcomes);
    const group = this.#group(id);
    if (group) {
      group.trials = tally(outcomes);
      end(group);
    }
    this.#count();
  }
}

/** The phases in which an evaluation that begins runs beside a rollout. */
const SAMPLING = ['rollout', 'paused', 'blocked'];

const ofHeldOut = (groups: number): string => `${groups} groups of held-out tasks`;

function tally(outcomes: Outcome[]): Partial<Record<Outcome, number>> {
  const counts: Partial<Record<Outcome, number>> = {};
  for (const outcome of outcomes) counts[outcome] = (counts[outcome] ?? 0) + 1;
  return counts;
}

const isoOf = (ms: number): string => new Date(ms).toISOString();

const newGroup = (
  { id, task, size }: { id: string; task: string; size: number },
  since = isoOf(Date.now()),
): GroupStatus => ({
  id,
  task,
  state: 'running',
  since,
  trials: { waiting: size },
  until: null,
});

function end(group: GroupStatus): void {
  if (group.state === 'running') Object.assign(group, { state: 'ended', since: isoOf(Date.now()), until: null });
}
