import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../core/repository.ts';
import { declarationOf, GATEWAY_KEYS } from './settings.ts';

const HEADER = '| setting | default | in a Worker | what it sets |\n|---|---|---|---|\n';

const rows = GATEWAY_KEYS.map((key) => {
  const { about, placeholder, default: usual, workerDefault } = declarationOf(key);
  const shown = (value: unknown) =>
    typeof value !== 'number'
      ? `\`${String(value)}\``
      : placeholder === 'BYTES'
        ? `${value / 2 ** 20} MiB`
        : value.toLocaleString('en');
  return `| \`${key}\` | ${shown(usual)} | ${workerDefault === undefined ? '' : shown(workerDefault)} | ${about} |\n`;
});

test('the table of docs/gateway.md has each setting of the gateway as declared (`vitest run --project fast gateway/settings.test.ts -u` writes it)', async () => {
  const file = `${REPOSITORY}/docs/gateway.md`;
  const [before, table = '', ...more] = readFileSync(file, 'utf8').split(HEADER);
  expect(more).toEqual([]);
  const after = table.replace(/^(\|.*\n)*/, '');
  await expect([before, HEADER, ...rows, after].join('')).toMatchFileSnapshot(file);
});
