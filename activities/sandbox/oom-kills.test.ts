import { expect, test } from 'vitest';
import { wasMachineOutOfMemory } from './oom-kills.ts';

const MORE = { before: 3, after: 4 };
const SAME = { before: 3, after: 3 };

test.each([
  { what: 'a kill at the sandbox’s own limit is the sandbox’s, whatever the machine’s counter says', process: { oomKills: 1, hitMemoryLimit: true }, machine: MORE, expected: false },
  { what: 'a kill below the sandbox’s limit is the machine’s', process: { oomKills: 1, hitMemoryLimit: false }, machine: MORE, expected: true },
  { what: 'kills in other sandboxes are no evidence', process: { oomKills: 0, hitMemoryLimit: false }, machine: MORE, expected: false },
  { what: 'without control groups a higher counter of the machine is evidence', process: { oomKills: null, hitMemoryLimit: false }, machine: MORE, expected: true },
  { what: 'without control groups an unchanged counter of the machine is no evidence', process: { oomKills: null, hitMemoryLimit: false }, machine: SAME, expected: false },
])('$what', ({ process, machine, expected }) => {
  expect(wasMachineOutOfMemory(process, machine)).toBe(expected);
});
