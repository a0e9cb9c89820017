import { expect, test } from 'vitest';
import { wasMachineOutOfMemory } from './oom-kills.ts';

const MORE = { before: 3, after: 4 };
const SAME = { before: 3, after: 3 };

test.each([
  { what: 'a sandbox at its own limit did that to itself, whatever the machine counts', process: { oomKills: 1, hitMemoryLimit: true }, machine: MORE, expected: false },
  { what: 'one that lost a process below its limit lost it to the machine', process: { oomKills: 1, hitMemoryLimit: false }, machine: MORE, expected: true },
  { what: 'what other sandboxes did to themselves is no evidence', process: { oomKills: 0, hitMemoryLimit: false }, machine: MORE, expected: false },
  { what: "without control groups the machine's counter is all there is", process: { oomKills: null, hitMemoryLimit: false }, machine: MORE, expected: true },
  { what: 'and it did not move', process: { oomKills: null, hitMemoryLimit: false }, machine: SAME, expected: false },
])('$what', ({ process, machine, expected }) => {
  expect(wasMachineOutOfMemory(process, machine)).toBe(expected);
});
