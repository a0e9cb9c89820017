import { sleep } from '@temporalio/activity';
import type { GroupPlan } from '../../../activities/rollout/group-plan.ts';
import type { Rollout, TakeInput } from '../../../activities/rollout/plan-groups.ts';
import type { PublishInput, ReplicaReport } from '../../../core/gpu-contract.ts';
import { runConfig } from '../../../core/run-config/run-config.ts';
import { confirmedReplicas } from './confirmed-replicas.ts';
import type { AllActivities } from '../harness/all-activities.ts';
import type { Outcome } from '../../../store/tables/trials.ts';

type AgentInput = Parameters<AllActivities['runAgent']>[0];

/** Activities over a store in memory and a trainer that counts, for tests that cause failures on purpose. `log` has every call. */
export class FakeWorld {
  readonly log: string[] = [];
  readonly outcomes = new Map<string, Outcome>();
  readonly takes = new Map<number, number>();
  config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 2, groups_per_iteration: 2, group_size: 2 });
  readonly planned = new Set<string>();
  readonly ended = new Set<string>();
  poolWhole = true;
  /** False after a blocked run has released its engines. */
  hasPool = true;
  published = 0;
  blockedReason = '';
  runAgent: (input: AgentInput) => Promise<Awaited<ReturnType<AllActivities['runAgent']>>> = async () => ({
    outcome: null,
    seconds: {},
  });
  trainStep: () => Promise<void> = async () => {};
  sealTrial = async ({
    trialId,
    attempt,
    outcome,
  }: {
    trialId: string;
    attempt: number;
    outcome: Outcome;
  }): Promise<void> => {
    this.log.push(`seal ${trialId} ${attempt} ${outcome}`);
    if (outcome !== 'infra_error') this.outcomes.set(trialId, outcome);
  };
  configureRun = async ({ changes }: { changes: Record<string, unknown> }) =>
    (this.config = runConfig.parse({ ...this.config, ...changes }));
  publish: (input: PublishInput) => Partial<ReplicaReport> | Promise<Partial<ReplicaReport>> = () => ({});

  count(entry: string): number {
    return this.log.filter((each) => each === entry).length;
  }

  general() {
    const note = (entry: string) => void this.log.push(entry);
    const plans = (prefix: string, kind: 'train' | 'eval', policyVersion: number): GroupPlan[] =>
      Array.from({ length: this.config.groups_per_iteration }, (_, ordinal) => ({
        id: `${prefix}/${ordinal}`,
        trialPrefix: `${prefix.replace('/', '-')}-${ordinal}`,
        runId: prefix.split('/')[0] ?? '',
        kind,
        iteration: 0,
        take: 1,
        ordinal,
        size: this.config.group_size,
        task: 't',
        agent: 'a',
        policyVersion,
      }));
    return {
      prepareRun: async () => ({ config: this.config, iteration: 0, policyVersion: 0 }),
      acquirePool: async () => {
        note('acquirePool');
        this.hasPool = true;
      },
      releasePool: async () => note('releasePool'),
      releaseUnusedPool: async () => {
        note('releaseUnusedPool');
        this.hasPool = false;
        return true;
      },
      planBase: async () => ({}),
      recordBase: async () => {},
      setRunStatus: async ({ status, reason }: { status: string; reason?: string }) => {
        note(status);
        if (status === 'blocked') this.blockedReason = reason ?? '';
      },
      openTake: async ({ iteration }: { iteration: number }) => {
        const take = (this.takes.get(iteration) ?? 0) + 1;
        this.takes.set(iteration, take);
        return { take, superseded: [] };
      },
      planGroups: async (input: TakeInput & { reopen: boolean; known: boolean }): Promise<Rollout> => {
        const all = plans(`${input.runId}/${input.iteration}.${input.take}`, 'train', input.policyVersion);
        if (!this.planned.has(all[0]?.id ?? '')) note(`sample ${input.iteration} from ${input.policyVersion}`);
        for (const { id } of all) this.planned.add(id);
        const open = all.filter(({ id }) => !this.ended.has(id));
        return {
          open: open.map(({ id }) => id),
          plans: input.known ? [] : open,
          last: [],
          outlived: [],
          stale: [],
          progress: open.map(({ size }) => [size, 0, 0, null]),
          eligible: all.length - open.length,
          wanted: all.length,
          isReady: open.length === 0,
        };
      },
      planEvaluation: async (input: { runId: string; policyVersion: number }) => {
        note(`evaluate ${input.policyVersion}`);
        return plans(`${input.runId}/eval@${input.policyVersion}`, 'eval', input.policyVersion);
      },
      checkEvaluation: async () => {},
      openGroup: async () => ({
        maxAttempts: this.config.max_attempts,
        trialSeconds: this.config.deadlines.trial,
        groupSeconds: this.config.deadlines.group,
        quorum: this.config.group_quorum ?? this.config.group_size,
        stragglers: this.config.stragglers,
        reportsStragglers: this.config.max_stale_stragglers !== null || this.config.max_concurrent_trials !== null,
      }),
      endGroup: async ({ id }: { id: string }) => {
        if (!this.ended.has(id)) note(`end ${id}`);
        this.ended.add(id);
      },
      awaitGroup: async ({ id }: { id: string }) => {
        while (!this.ended.has(id)) await sleep(50);
      },
      configureRun: (input: { changes: Record<string, unknown> }) => this.configureRun(input),
      findOpenTrial: async ({ trialId }: { trialId: string }) => {
        const [, groupId, trialIndex] = /^(.+)-(\d+)$/.exec(trialId) ?? [];
        return { groupId: groupId?.replace(/-(\d+\.\d+)-(\d+)$/, '/$1/$2') ?? '', trialIndex: Number(trialIndex) };
      },
      readWait: async () => ({ seconds: 0, isExcuse: false }),
      sealTrial: (input: { trialId: string; attempt: number; outcome: Outcome }) => this.sealTrial(input),
      poolHas: async () => this.hasPool,
      missingVersion: async () => (this.poolWhole ? null : this.published),
      listRunningGroups: async () => [...this.planned].filter((id) => !this.ended.has(id)),
      hasLostReplica: async () => !this.poolWhole,
      extendGroup: async ({ id, until }: { id: string; until: string }) => note(`extend ${id} ${until}`),
      awaitPool: async () => {
        while (!this.poolWhole) await sleep(100);
      },
      assembleBatch: async ({ iteration }: { iteration: number }) => ({
        samples: 1,
        parentVersion: iteration,
        step: { version: iteration + 1, batch_sha256: 'b' },
      }),
      recordVersion: async ({ version }: { version: number }) => note(`record ${version}`),
      beginPublication: async ({ runId, version, isMend }: { runId: string; version: number; isMend?: boolean }) => ({
        weight_version: `${runId}@${version}`,
        replicas: ['u'],
        min_replicas: isMend ? 0 : 1,
        needed: 1,
      }),
      endPublication: async ({ version, reports }: { version: number; reports: ReplicaReport[] }) => {
        const confirmed = reports.filter((report) => report.ok).length;
        note(`publish ${version} ${confirmed}`);
        if (confirmed > 0) Object.assign(this, { poolWhole: true, published: version });
        return { confirmed };
      },
      closeTake: async ({ iteration, take }: { iteration: number; take: number }) => note(`close ${iteration}.${take}`),
    };
  }

  sandboxes() {
    return {
      openTrial: async ({ trialId, attempt }: { trialId: string; attempt: number }) => {
        const finished = this.outcomes.get(trialId);
        return finished ? { finished } : { finished: null, attempt, host: 'host' };
      },
    };
  }

  host() {
    return {
      runAgent: (input: AgentInput) => this.runAgent(input),
      closeSandbox: async () => {},
      verifyTrial: async () => ({ outcome: null, rewards: { reward: 1 }, seconds: {} }),
    };
  }

  gpu() {
    return {
      loadBase: async () => ({}),
      trainStep: async ({ version }: { version: number }) => {
        await this.trainStep();
        this.log.push(`train ${version}`);
        return {};
      },
      publishPolicy: async (input: PublishInput) => {
        const outcome = await this.publish(input);
        return { replicas: confirmedReplicas(input).map((report) => ({ ...report, ...outcome })) };
      },
    };
  }
}
