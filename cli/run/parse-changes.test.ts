import { expect, test } from 'vitest';
import { parsePolicy, parseRunOrPolicy } from './name-run.ts';
import { parseChanges } from './parse-changes.ts';
import { parseWeights } from './parse-weights.ts';

test('a run’s setting on the command line means the same as in a run file', () => {
  expect(
    parseChanges([
      'optim.lr=1e-5',
      'optim.betas=[0.9, 0.95]',
      'group_size=16',
      'evaluation.every=null',
      'agents=[oneshot]',
      'loss_agg_mode=token-mean',
    ]),
  ).toEqual({
    optim: { lr: 1e-5, betas: [0.9, 0.95] },
    group_size: 16,
    evaluation: { every: null },
    agents: ['oneshot'],
    loss_agg_mode: 'token-mean',
  });
});

test('a tasks folder on the command line is relative to the folder in which the command runs', () => {
  expect(parseChanges(['evaluation.tasks=[cli, nowhere]'], process.cwd())).toEqual({
    evaluation: { tasks: [`${process.cwd()}/cli`, 'nowhere'] },
  });
});

test.each(['group_size', '=3', 'optim..lr=1', '--x=1', ''])(
  'the command line refuses %j as a run’s setting, with an example of one',
  (setting) => {
    expect(() => parseChanges([setting])).toThrow('expected a setting such as optim.lr=1e-5');
  },
);

test('the command line refuses a run’s setting whose value is not valid YAML, and names it', () => {
  expect(() => parseChanges(['tasks=[a'])).toThrow(/^tasks=\[a: not a YAML value: /);
});

test('`--reward-weights` takes name=number pairs and refuses anything else', () => {
  expect(parseWeights('tests=1, style=0.2,length=-1e-3')).toEqual({ tests: 1, style: 0.2, length: -0.001 });
  for (const text of ['', 'tests', 'tests=', 'tests=high', 'tests=1,,style=1', 'tests=1;style=2'])
    expect(() => parseWeights(text)).toThrow('--reward-weights: expected');
});

test('the command line reads a policy version as RUN@NUMBER and refuses anything else', () => {
  expect(parsePolicy('my.run-2@10')).toEqual({ runId: 'my.run-2', version: 10 });
  expect(parseRunOrPolicy('first')).toEqual({ runId: 'first' });
  for (const text of ['first', 'first@', 'first@latest', '@2', 'a/b@1'])
    expect(() => parsePolicy(text)).toThrow('expected a ');
});
