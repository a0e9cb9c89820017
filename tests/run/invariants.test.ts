import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { readInvariants } from '../../cli/checks/references/invariants.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { GATE_AREAS, LAST, SIDE_BY_SIDE } from './suites.ts';
import { WORKERD_IN_GATE } from './workerd-in-gate.ts';

const read = (file: string): string => readFileSync(path.join(REPOSITORY, file), 'utf8');
const invariants = readInvariants(read('docs/invariants.md'));
const realInGate = [...SIDE_BY_SIDE.flat(), ...LAST]
  .filter(({ area }) => GATE_AREAS.some((each) => each === area))
  .flatMap((suite) => (suite.kind === 'vitest' ? (suite.files ?? []) : []));

/** Returns true if `npm test` runs a test of this file. */
function isInGate(file: string): boolean {
  if (file.endsWith('.real.test.ts')) return realInGate.includes(file);
  if (file.endsWith('.workerd.test.ts')) return WORKERD_IN_GATE.includes(file);
  if (!file.endsWith('.py')) return true;
  const text = read(file);
  return !/^pytestmark = .*(?:\n {4}.*)*mark\.(?:real|processes)/m.test(text) || text.includes('mark.gate');
}

test('`npm test` runs each file that docs/invariants.md names as its test', () => {
  const missing = invariants.flatMap(({ number, inGate }) =>
    inGate.filter((file) => !isInGate(file)).map((file) => `invariant ${number}: ${file}`),
  );
  expect(missing).toEqual([]);
});

test('each invariant has a test in `npm test` that needs no engine', () => {
  const without = invariants.filter(({ inGate }) => inGate.every((file) => file.endsWith('.real.test.ts')));
  expect(without.map(({ number }) => number)).toEqual([]);
});

test('docs/invariants.md names no file for the full set that `npm test` runs whole', () => {
  const files = invariants.flatMap(({ tests, inGate }) => tests.filter((file) => !inGate.includes(file)));
  expect(files.filter((file) => file.endsWith('.ts') && isInGate(file))).toEqual([]);
});
