import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { CHECKS } from '../../activities/sandbox/conformance/checks.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { conformanceTable, ON_A_FAKE } from './table.ts';

it('docs/sandboxes.md has each sentence that a kind must keep, with what the newest results say (`node bench/sandbox-conformance.ts --table` prints it)', () => {
  const page = readFileSync(join(REPOSITORY, 'docs/sandboxes.md'), 'utf8');
  const [, table] = /<!-- checks -->\n([^]*)\n<!-- end of checks -->/.exec(page) ?? [];
  expect(table?.trim()).toBe(conformanceTable());
});

const result = (date: string, ...sections: string[]): string =>
  [JSON.stringify({ command: 'node', machine: '2 cores', date, commit: 'abc' }, null, 2), ...sections].join('\n\n');

it('a sentence holds, fails or is refused as the newest result that tried it says, and is not tried where there is none', () => {
  const [first, second, third, fourth, fifth] = CHECKS.map(({ sentence }) => sentence);
  const large = CHECKS.find(({ isLarge }) => isLarge)?.sentence;
  const old = result(
    '2026-01-01T10:00:00.000Z',
    `slurm\nJobs.\nfailed     0.1 s  ${first}: it did not\npassed     0.1 s  ${fifth}\npassed    90.0 s  ${large}`,
    `bubblewrap\nOlder.\npassed     0.1 s  ${first}`,
  );
  const section = [
    ...[
      'bubblewrap',
      'Sandboxes.',
      `passed     0.4 s  ${first}`,
      `failed   100.0 s  ${second}: it has a: b\n\ncontainer of its own\n\nand more`,
    ],
    ...[`skipped    0.0 s  ${third}: this kind says that it cannot`, `error      0.0 s  ${fourth}: no disk`],
  ].join('\n');
  const table = conformanceTable([
    result('2026-01-02T10:00:00.000Z', section, `slurm\nJobs.\npassed     0.1 s  ${first}`),
    old,
  ]);
  const lines = table.split('\n');
  expect(lines.slice(2, 7)).toEqual([
    `| ${first} | holds | not tried | holds | not tried |`,
    `| ${second} | **fails** | not tried | not tried | not tried |`,
    `| ${third} | refused | not tried | not tried | not tried |`,
    `| ${fourth} | not tried | not tried | not tried | not tried |`,
    `| ${fifth} | not tried | not tried | holds | not tried |`,
  ]);
  expect(lines.slice(-5)).toEqual([
    '- `bubblewrap`: 2026-01-02, 2 cores. Sandboxes.',
    '- `container`: no result.',
    '- `slurm`: 2026-01-02, 2 cores. Jobs.',
    `- \`slurm\`: 2026-01-01, 2 cores, only for “${fifth}”, \`--large\`. Jobs.`,
    '- `kubernetes`: no result.',
  ]);
});

it('what was tried on a fake cluster is not in the table', () => {
  const section = (kind: string): string =>
    [kind, 'Pods.', ...CHECKS.map(({ sentence }) => `passed     0.1 s  ${sentence}`)].join('\n');
  const tableOf = (kind: string): string => conformanceTable([result('2026-01-01T10:00:00.000Z', section(kind))]);
  expect(tableOf('kubernetes')).toContain('- `kubernetes`: 2026-01-01');
  expect(tableOf(`kubernetes${ON_A_FAKE}`)).not.toContain('holds');
  expect(tableOf(`kubernetes${ON_A_FAKE}`)).toContain('- `kubernetes`: no result.');
});
