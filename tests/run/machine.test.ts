import { expect, test } from 'vitest';
import { requireMachine, thisMachine } from './machine.ts';

const ENOUGH = { cores: 2, load: 3, memoryGb: 20, diskGb: 50, temporaryGb: 50 };

test('tests begin on a machine that has enough, also beside other work', () => {
  expect(() => requireMachine(ENOUGH, 'real')).not.toThrow();
  expect(() => requireMachine({ ...ENOUGH, load: 12 }, 'real')).not.toThrow();
});

test('a machine that has too little is refused with all that it lacks, and how much is needed', () => {
  const poor = { cores: 1, load: 40, memoryGb: 2, diskGb: 1, temporaryGb: 0.5 };
  expect(() => requireMachine(poor, 'real')).toThrow(
    /1 processor, and 2 are needed; a load of 40\.0, and at most 12 .*; 2\.0 GB memory available, and 8 GB are needed; 1\.0 GB free .* 3 GB are needed; 0\.5 GB free/,
  );
  expect(() => requireMachine({ ...ENOUGH, memoryGb: 4 }, 'fast')).not.toThrow();
});

test('this machine is measured', () => {
  const { cores, memoryGb, diskGb, temporaryGb } = thisMachine();
  for (const value of [cores, memoryGb, diskGb, temporaryGb]) expect(value).toBeGreaterThan(0);
});
