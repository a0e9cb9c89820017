import { expect, test } from 'vitest';
import { IN_GATE } from '../../../tests/support/harness/in-gate.ts';
import { policiesAt } from '../policies.ts';
import { ceiling } from './ceiling.ts';
import { Durations, oneByOne } from './durations.ts';
import { measure } from './figures.ts';
import { consultOracle, oracleRules } from './oracle.ts';
import { synchronous } from './rules.ts';
import { Simulation } from './simulation.ts';

const all = [0, 1, 2].flatMap((staleness) => policiesAt(staleness));

test('the simulation: a train step trains on no trial that is too old, and on none twice', () => {
  for (const { rules, name } of all) {
    const simulation = new Simulation(rules, new Durations(1, 16));
    const seen = new Set<unknown>();
    simulation.settled = (trial, staleness) => {
      expect(seen.has(trial), `${name}: settled twice`).toBe(false);
      seen.add(trial);
      if (trial.state === 'trained') expect(staleness, name).toBeLessThanOrEqual(rules.maxStaleness);
    };
    while (simulation.steps < 30) simulation.advance();
  }
});

test('the simulation: at most as many trials run as there are slots, and at most as many are under way as invariant 10 allows', () => {
  for (const { rules, name } of all.filter(
    (policy) => policy.rules.overSampling === 0 && policy.rules.stragglers !== 'cancel',
  )) {
    const simulation = new Simulation(rules, new Durations(2, 16));
    while (simulation.steps < 30) {
      simulation.advance();
      const underWay = simulation.groups
        .flatMap(({ trials }) => trials)
        .filter(({ state }) => state === 'queued' || state === 'running' || state === 'ended').length;
      expect(simulation.running.length, name).toBeLessThanOrEqual(rules.slots);
      expect(underWay, name).toBeLessThanOrEqual((rules.maxStaleness + 1) * rules.groupsPerStep * rules.groupSize);
    }
  }
});

test('the simulation: a train step makes at most as many running trials too old as its rules allow', () => {
  for (const { rules, name } of all.filter((policy) => policy.name === 'carry-over, patient')) {
    const simulation = new Simulation(rules, new Durations(7, 16));
    for (let wasTraining = false; simulation.steps < 60; wasTraining = simulation.isTraining) {
      simulation.advance();
      if (!simulation.isTraining || wasTraining) continue;
      const idle = Math.max(0, rules.slots - simulation.underWay);
      expect(simulation.atLimit().length, name).toBeLessThanOrEqual(rules.maxStaleStragglers + idle);
    }
  }
});

test('the simulation: the shares of useful, lost and idle slot time add up to 1', () => {
  for (const { rules, name } of all) {
    const { useful, lost, idle } = measure(rules, new Durations(8, 16), { steps: 100 });
    expect(useful + lost + idle.nothing + idle.train + idle.publish, name).toBeCloseTo(1, 1);
  }
});

test('the simulation: a synchronous iteration takes as long as its slowest trial, its train step and its publication', () => {
  const durations = new Durations(3, 16);
  const simulation = new Simulation(synchronous, durations);
  let expected = 0;
  for (let step = 0; step < 5; step++) {
    const trials = Array.from({ length: 8 }, (_, i) => durations.of(8 * step + i).slice(0, 8)).flat();
    expected += Math.min(Math.max(...trials), synchronous.deadline) + synchronous.trainTime + synchronous.publishTime;
  }
  while (simulation.version < 5) simulation.advance();
  expect(simulation.now).toBeCloseTo(expected, 6);
});

test('the simulation: advancing a copy of a simulation leaves the original unchanged', () => {
  const policy = all.find(({ name, staleness }) => name === 'carry-over' && staleness === 2);
  if (!policy) throw new Error('no such policy');
  const [plain, forked] = [4, 4].map((seed) => new Simulation(policy.rules, new Durations(seed, 16)));
  if (!plain || !forked) throw new Error('unreachable');
  for (let i = 0; i < 2000; i++) {
    plain.advance();
    forked.advance();
    if (i % 50 === 0) {
      const ahead = forked.fork((simulation) => simulation.now);
      for (let j = 0; j < 100; j++) ahead.advance();
    }
  }
  expect([forked.now, forked.trained, forked.steps]).toEqual([plain.now, plain.trained, plain.steps]);
});

// It plans for seconds.
test.skipIf(process.env[IN_GATE])(
  'the simulation: an oracle that knows trials’ durations beats the same rules without them, and stays below the computed ceiling',
  () => {
    const rules = { ...synchronous, maxStaleness: 2 };
    const blind = measure(oracleRules(rules), oneByOne(new Durations(5, 16), rules.groupSize), { steps: 12 });
    const known = consultOracle(rules, { seed: 5, objective: 'useful', steps: 12 });
    expect(known.useful).toBeGreaterThan(blind.useful);
    expect(known.useful).toBeLessThan(ceiling(rules, true).useful);
    expect(blind.useful).toBeLessThan(ceiling(rules, false).useful);
  },
);

test('the simulation: the oracle plans with the same trial durations that the other rules are measured with', () => {
  const [grouped, single] = [new Durations(9, 16), oneByOne(new Durations(9, 16), 8)];
  expect([0, 7, 8, 30].map((trial) => single.of(trial))).toEqual(
    [
      [0, 0],
      [0, 7],
      [1, 0],
      [3, 6],
    ].map(([group = 0, trialIndex = 0]) => [grouped.of(group)[trialIndex]]),
  );
});

test('the simulation: trial durations before any deadline have a median of 1 and a 99th percentile of 20', () => {
  const durations = new Durations(6, 16);
  const sorted = Array.from({ length: 2000 }, (_, group) => durations.of(group))
    .flat()
    .toSorted((a, b) => a - b);
  expect(sorted[sorted.length / 2]).toBeCloseTo(1, 1);
  expect((sorted[Math.floor(0.99 * sorted.length)] ?? 0) / 20).toBeCloseTo(1, 0);
});
