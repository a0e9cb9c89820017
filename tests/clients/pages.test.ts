import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import { CLIENTS } from './all.ts';
import { modeRowsIn, setupOf, withModes } from './page.ts';

const PAGES = join(REPOSITORY, 'docs/clients');
const read = (name: string): string => readFileSync(join(PAGES, `${name}.md`), 'utf8');
const rows = modeRowsIn(readFileSync(join(REPOSITORY, 'bench/results/clients.txt'), 'utf8'));

test('each client that the tests run has a page in docs/clients, and each page has a client', () => {
  expect(readdirSync(PAGES).toSorted()).toEqual(['README.md', ...CLIENTS.map(({ name }) => `${name}.md`)].toSorted());
  expect(CLIENTS).toHaveLength(24);
});

test.for(CLIENTS.filter(({ oneMode }) => !oneMode))(
  'the page of $name in docs/clients shows what its script does',
  ({ name }) => {
    const page = read(name);
    const scripts = [...page.matchAll(/tests\/clients\/scripts\/([\w.]+)\)/g)].map(([, file = '']) =>
      readFileSync(join(import.meta.dirname, 'scripts', file), 'utf8'),
    );
    const blocks = [...page.matchAll(/```\w+\n([^]*?)```/g)].map(([, block = '']) => block);
    expect([scripts.length, blocks.length > 0]).toEqual([1, true]);
    for (const block of blocks) expect(scripts[0]).toContain(block);
  },
);

test.for(CLIENTS.filter(({ oneMode }) => oneMode))(
  'the page of $name in docs/clients shows how the tests start it',
  (client) => {
    const page = read(client.name);
    for (const block of setupOf(client)) expect(page).toContain(block);
  },
);

test.for(CLIENTS)('the page of $name in docs/clients has the measured figures of its modes', ({ name, modes }) => {
  const own = rows.filter(({ client }) => client === name);
  expect(own.map(({ mode }) => mode)).toEqual(modes.map((each) => each.name));
  expect(read(name)).toBe(withModes(read(name), own));
});

test('the index of docs/clients has all measured figures', () => {
  expect(read('README')).toBe(withModes(read('README'), rows, true));
});
