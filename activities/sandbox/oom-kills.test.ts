import { expect, test } from 'vitest';
import { wasMachineOutOfMemory } from './oom-kills.ts';

const MORE = { before: 3, after: 4 };
const SAME = { before: 3, after: 3 };

test.each([
  {
    what: 'an out-of-memory kill at a sandbox’s own limit is not blamed on the host, whatever the host’s counter says',
    process: { oomKills: 1, hitMemoryLimit: true },
    machine: MORE,
    expected: false,
  },
  {
    what: 'an out-of-memory kill below a sandbox’s limit is blamed on the host',
    process: { oomKills: 1, hitMemoryLimit: false },
    machine: MORE,
    expected: true,
  },
  {
    what: 'out-of-memory kills in other sandboxes are not blamed on the host',
    process: { oomKills: 0, hitMemoryLimit: false },
    machine: MORE,
    expected: false,
  },
  {
    what: 'without control groups a process’s end is blamed on the host when the host’s counter of out-of-memory kills has risen',
    process: { oomKills: null, hitMemoryLimit: false },
    machine: MORE,
    expected: true,
  },
  {
    what: 'without control groups a process’s end is not blamed on the host when the host’s counter of out-of-memory kills is unchanged',
    process: { oomKills: null, hitMemoryLimit: false },
    machine: SAME,
    expected: false,
  },
])('$what', ({ process, machine, expected }) => {
  expect(wasMachineOutOfMemory(process, machine)).toBe(expected);
});
