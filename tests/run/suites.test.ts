import { globSync } from 'node:fs';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import { GATE_AREAS, LAST, REAL_FILES, SIDE_BY_SIDE } from './suites.ts';

const realFiles = globSync('**/*.real.test.ts', {
  cwd: REPOSITORY,
  exclude: ['**/node_modules/**', '**/.trialgate*/**'],
});

test('each test file with real parts belongs to exactly one area', () => {
  const areas = Object.entries(REAL_FILES);
  const wrong = realFiles
    .map((file) => [file, areas.filter(([, parts]) => parts.some((part) => file.includes(part))).map(([area]) => area)])
    .filter(([, of]) => of?.length !== 1);
  expect(wrong).toEqual([]);
});

test('each path of an area is one of a file that exists', () => {
  const parts = Object.values(REAL_FILES).flat();
  expect(parts.filter((part) => !realFiles.some((file) => file.includes(part)))).toEqual([]);
});

test('the tests in Python are divided among suites that leave out none and run none twice', () => {
  const all = globSync('gpu-workers/**/*_test.py', { cwd: REPOSITORY });
  const runs = SIDE_BY_SIDE.flat().flatMap((suite) =>
    suite.kind === 'pytest' ? (suite.files ?? all.filter((file) => !suite.without?.includes(file))) : [],
  );
  expect(runs.toSorted()).toEqual(all.toSorted());
});

test('the gate has one file with real parts', () => {
  const gate = [...SIDE_BY_SIDE.flat(), ...LAST].filter(
    (suite) => suite.kind === 'vitest' && suite.project === 'real' && GATE_AREAS.some((each) => each === suite.area),
  );
  expect(gate.map((suite) => 'files' in suite && suite.files)).toEqual([['tests/e2e/main-job.real.test.ts']]);
});
