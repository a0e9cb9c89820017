import { setCurrentDetails, setHandler, upsertSearchAttributes } from '@temporalio/workflow';
import type { Rollout } from '../activities/plan-groups.ts';
import { groupEndedSignal, groupMovedSignal, phaseSignal, statusQuery, type GroupEnd, type GroupStatus, type RunStatusReport } from './messages.ts';

/** What a run tells whoever asks: by its `status` query, and where Temporal's own page shows it. */
export class RunStatus {
  readonly report: RunStatusReport;
  readonly #counted = new Set<string>();

  constructor(runId: string, onGroupEnd: (id: string) => void) {
    this.report = {
      run: runId, phase: 'preparing', iteration: 0, iterations: 0, take: 0, policy_version: 0,
      groups_ended: 0, groups: 0, trials: {}, waits_for: null, until: null, members: [], reason: null,
    };
    setHandler(statusQuery, () => this.report);
    setHandler(phaseSignal, ({ phase, begun, seconds }) => {
      this.enter(phase);
      if (begun) this.#begin(begun, seconds);
    });
    setHandler(groupEndedSignal, (ending) => {
      this.#count(ending);
      onGroupEnd(ending.id);
    });
    setHandler(groupMovedSignal, ({ id, until }) => {
      const member = this.#member(id);
      if (member) member.until = until;
    });
  }

  enter(phase: string): void {
    this.report.phase = phase;
    upsertSearchAttributes({ TrialgatePhase: [phase] });
    this.waitFor(null);
  }

  waitFor(what: string | null, until: number | null = null): void {
    this.report.waits_for = what;
    this.report.until = until === null ? null : new Date(until).toISOString();
    setCurrentDetails(this.describe());
  }

  /** Its iteration's groups, when it has looked at them. */
  sees({ open, standings, plans, eligible, wanted }: Rollout, until: number): void {
    const { members } = this.report;
    for (const { id, task, size, openedAt } of plans) if (!this.#member(id)) members.push(newMember({ id, task, size }, openedAt));
    const running = new Map(open.map((id, i) => [id, standings?.[i]]));
    for (const member of members) {
      const standing = running.get(member.id);
      if (standing) {
        const [waiting, run, ended, deadline] = standing;
        Object.assign(member, { trials: { waiting, running: run, ended }, until: deadline === null ? member.until : isoOf(deadline * 1000) });
      } else if (!running.has(member.id)) end(member);
    }
    this.#countGroups();
    this.waitFor(`${wanted} trials for the batch: ${eligible} are there, ${running.size} groups run`, until);
  }

  /** The groups of an evaluation, with what time it has. */
  #begin(begun: { id: string; task: string; size: number }[], seconds?: number): void {
    this.#counted.clear();
    const until = seconds === undefined ? null : isoOf(Date.now() + seconds * 1000);
    this.report.members = begun.map((group) => ({ ...newMember(group), until }));
    this.report.trials = {};
    this.#countGroups();
    this.waitFor(`${begun.length} groups of held-out tasks`, until === null ? null : Date.parse(until));
  }

  #member(id: string): GroupStatus | undefined {
    return this.report.members.find((each) => each.id === id);
  }

  #countGroups(): void {
    const { members } = this.report;
    Object.assign(this.report, { groups: members.length, groups_ended: members.filter(({ state }) => state === 'ended').length });
  }

  describe(): string {
    const { phase, iteration, iterations, take, policy_version: version, waits_for: wait, until, reason } = this.report;
    const lines = [`**${phase}**: iteration ${iteration} of ${iterations}, take ${take}, policy ${version}`];
    if (wait !== null) lines.push(`waits for ${wait}${until === null ? '' : `, until ${until}`}`);
    if (reason !== null) lines.push(reason);
    return lines.join('\n\n');
  }

  #count({ id, outcomes }: GroupEnd): void {
    const { trials } = this.report;
    const member = this.#member(id);
    if (member) {
      member.trials = {};
      for (const outcome of outcomes) member.trials[outcome] = (member.trials[outcome] ?? 0) + 1;
      end(member);
      this.#countGroups();
    }
    if (this.#counted.has(id)) return;
    this.#counted.add(id);
    for (const outcome of outcomes) trials[outcome] = (trials[outcome] ?? 0) + 1;
  }
}

const isoOf = (ms: number): string => new Date(ms).toISOString();

const newMember = ({ id, task, size }: { id: string; task: string; size: number }, since = isoOf(Date.now())): GroupStatus => ({
  id, task, state: 'running', since, trials: { waiting: size }, until: null,
});

function end(member: GroupStatus): void {
  if (member.state === 'running') Object.assign(member, { state: 'ended', since: isoOf(Date.now()), until: null });
}
