import { expect, test } from 'vitest';
import { Random } from '../../tests/support/scenarios/fuzz/random.ts';
import { ChaosDeployment } from './deployment.ts';
import type { Fault } from './faults.ts';
import { oneRun } from './one-run.ts';
import { SmallDisk } from '../../tests/support/harness/small-disk.ts';

/** One run of `bench/chaos.ts`, with every kind of fault. */
const FAULTS: Fault[][] = [
  // Components that a full disk ended must restart, and the supervisor must survive although it cannot write its state.
  [
    { kind: 'full disk', at: 'home' },
    { kind: 'kill', at: 'gateway' },
  ],
  [
    { kind: 'full disk', at: 'checkpoints' },
    { kind: 'cut', at: 'postgres' },
  ],
  [
    { kind: 'stop', at: 'activity-worker' },
    { kind: 'kill', at: 'engine' },
  ],
];

test('a run completes and keeps every invariant under killed processes, full disks, cut connections and a stopped worker', async ({
  signal,
}) => {
  const withoutDisks = (await SmallDisk.refusal()) !== null;
  const faults = FAULTS.map((together) => together.filter(({ kind }) => !(withoutDisks && kind === 'full disk')));
  const start = performance.now();
  const log = (line: string) => console.log(`${((performance.now() - start) / 1000).toFixed(1)} s: ${line}`);
  const deployment = await ChaosDeployment.create(signal);
  const outcome = await oneRun(
    deployment,
    { run: 'chaos', iterations: 3, settings: 'carry-over', faults, random: new Random(1), log },
    signal,
  ).finally(async () => {
    expect(await deployment.remove()).toEqual([]);
  });
  expect(outcome).toMatchObject({ ended: 'completed', broken: [] });
  expect(outcome.faults.length).toBe(FAULTS.length);
  expect(outcome.witnessed).toBeGreaterThan(0);
});
