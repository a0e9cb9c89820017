import { setCurrentDetails, setHandler, upsertSearchAttributes } from '@temporalio/workflow';
import type { Rollout } from '../activities/plan-groups.ts';
import { groupEndedSignal, phaseSignal, statusQuery, type GroupEnd, type RunStatusReport } from './messages.ts';

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
    setHandler(phaseSignal, ({ phase, groups }) => {
      this.enter(phase);
      if (groups !== undefined) Object.assign(this.report, { groups, groups_ended: 0, trials: {} });
    });
    setHandler(groupEndedSignal, (end) => {
      this.#count(end);
      onGroupEnd(end.id);
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
  sees({ open, plans, eligible, wanted }: Rollout, until: number): void {
    const { members } = this.report;
    const now = new Date().toISOString();
    for (const { id, task } of plans) if (!members.some((each) => each.id === id)) members.push({ id, task, state: 'running', since: now });
    const running = new Set(open);
    for (const member of members) if (!running.has(member.id) && member.state === 'running') Object.assign(member, { state: 'ended', since: now });
    Object.assign(this.report, { groups: members.length, groups_ended: members.length - running.size });
    this.waitFor(`${wanted} trials for the batch: ${eligible} are there, ${running.size} groups run`, until);
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
    if (this.#counted.has(id)) return;
    this.#counted.add(id);
    for (const outcome of outcomes) trials[outcome] = (trials[outcome] ?? 0) + 1;
  }
}
