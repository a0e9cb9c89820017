import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * The files that take longest, longest first. On a fresh clone vitest knows no durations and begins with the largest files, so a small file that
 * takes a minute may begin last, and then one worker runs while the others are idle.
 */
export const LONGEST: readonly string[] = [
  'workflows/train-run.test.ts',
  'cli/run/operate-in-thread.test.ts',
  'tests/e2e/long-tail.test.ts',
  'tests/e2e/by-temporal.test.ts',
  'cli/models/check-model.test.ts',
  'cli/models/require-trainable.test.ts',
  'activities/sandbox/run-process.test.ts',
  'tests/e2e/started-again.test.ts',
  'tests/e2e/train-step-faults.test.ts',
  'gateway/runtimes/workerd/relay-hibernation.workerd.test.ts',
  'gateway/runtimes/node/relay-gateways.test.ts',
  'tests/e2e/external.test.ts',
  'tests/e2e/resume-run.test.ts',
  'cli/load-gateway.test.ts',
  'gateway/relay/relay.test.ts',
  'activities/sandbox/warm/fork-server.test.ts',
  'activities/reward/grade-row.test.ts',
  'agents/agents.test.ts',
  'gateway/runtimes/node/discovery/membership.test.ts',
  'tests/e2e/guarantees.test.ts',
  'gateway/engines/sglang/sglang.test.ts',
  'workflows/operator.test.ts',
  'activities/sandbox/verify.test.ts',
  'gateway/conversations/exact-tokens.test.ts',
  'tests/histories/replay.test.ts',
  'cli/import/swe/import-rows.test.ts',
  'activities/repositories/working-copy.test.ts',
  'gateway/runtimes/node/heavy-lane.test.ts',
  'tests/run/run-tests.test.ts',
  'tasks/bundled.test.ts',
  'tests/e2e/joined-engine.test.ts',
  'cli/engines/engines.test.ts',
  'gateway/runtimes/workerd/stale-reads.workerd.test.ts',
  'cli/attack/try-attacks.test.ts',
  'gateway/record/retry-after-kill.test.ts',
  'tests/e2e/slow-engine.test.ts',
  'tests/e2e/failed-evaluation.test.ts',
  'cli/unsandboxed.test.ts',
  'bench/rollouts/simulate/simulation.test.ts',
];

/** Begins each project with the files of `LONGEST`; the others follow in vitest's order. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification): number => {
      const at = LONGEST.findIndex((file) => moduleId.endsWith(`/${file}`));
      return at === -1 ? LONGEST.length : at;
    };
    const sorted = await super.sort(files);
    // Sorting is stable, and the projects stay in their order.
    const projects = [...new Set(sorted.map(({ project }) => project.name))];
    return projects.flatMap((name) =>
      sorted.filter(({ project }) => project.name === name).toSorted((one, other) => place(one) - place(other)),
    );
  }
}
