import { mkdtempSync, rmSync, writeFileSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { brokenReferences } from './broken-references.ts';
import { references } from './check-references.ts';
import { citedInvariants } from './invariants.ts';
import { headingsOf } from './links.ts';

const INVARIANTS =
  '# Invariants\n\n## 1. First\n\nWhy.\n\n- Code: `a/b.ts`\n- Tests in `npm test`: `a/b.test.ts`\n\n## 2. Second\n\n- Code: `a/b.ts`\n- Tests in `npm test`: `a/b_test.py`\n';
const SOUND = {
  'a/b.ts': '// Holds (invariant 2).',
  'a/b.test.ts': '',
  'a/b_test.py': '',
  'docs/invariants.md': INVARIANTS,
};

test('every link, cited invariant and named file in this repository exists', async ({ signal }) => {
  expect(await references(signal)).toEqual({ result: 'passed', summary: '' });
});

test('the reference check accepts links to files, folders and sections that exist, and ignores code and other sites', () => {
  const page =
    '[a](a/b.ts#L3) [b](a/) [c](docs/invariants.md#2-second) [d](#here) <https://x.org> [e](https://x.org/y)\n\n## Here\n\n```sh\n[f](gone.md)\n```\n\n`[g](gone.md)`\n';
  expect(broken({ ...SOUND, 'README.md': page })).toEqual([]);
});

test.each([
  ['[a](gone.md)', '](gone.md) leads to docs/gone.md, which is not in the repository'],
  ['[a](../../etc/passwd)', '](../../etc/passwd) leads to ../etc/passwd, which is not in the repository'],
  ['[a](invariants.md#3-third)', '](invariants.md#3-third) leads to a heading that docs/invariants.md does not have'],
  ['[a](#nowhere)', '](#nowhere) leads to a heading that docs/page.md does not have'],
  ['[a]: gone.md', '[a]: gone.md leads to docs/gone.md, which is not in the repository'],
  ['<img alt="" src="gone.png">', '<img alt="" src="gone.png" leads to docs/gone.png, which is not in the repository'],
])('the reference check names the broken link %s', (link, fault) => {
  expect(broken({ ...SOUND, 'docs/page.md': `# Page\n\n${link}\n` })).toEqual([`docs/page.md: ${fault}`]);
});

test.each([
  [
    'a number that is cited and not on the page',
    { 'a/b.ts': '/** As\n * invariants 1 and\n * 3 say. */' },
    'a/b.ts: cites invariant 3, which docs/invariants.md does not have',
  ],
  [
    'a file that is named and not there',
    { 'docs/invariants.md': INVARIANTS.replace('Why.', 'See `a/c.ts`.') },
    'docs/invariants.md: invariant 1 names a/c.ts, which is not in the repository',
  ],
  [
    'an invariant without a test in `npm test`',
    {
      'docs/invariants.md': INVARIANTS.replace(
        '- Tests in `npm test`: `a/b_test.py`',
        '- Tests in the full set: `a/b_test.py`',
      ),
    },
    'docs/invariants.md: invariant 2 names no test in `npm test`',
  ],
  [
    'an invariant without code',
    {
      'docs/invariants.md': INVARIANTS.replace(
        '- Code: `a/b.ts`\n- Tests in `npm test`: `a/b.test.ts`',
        '- Tests in `npm test`: `a/b.test.ts`',
      ),
    },
    'docs/invariants.md: invariant 1 names no code',
  ],
  [
    'a test that is none',
    {
      'docs/invariants.md': INVARIANTS.replace(
        '- Tests in `npm test`: `a/b.test.ts`',
        '- Tests in `npm test`: `a/b.test.ts`, `a/b.ts`',
      ),
    },
    'docs/invariants.md: invariant 1 names a/b.ts as a test, which is none',
  ],
  [
    'a number that is left out',
    { 'a/b.ts': '', 'docs/invariants.md': INVARIANTS.replace('## 2.', '## 4.') },
    'docs/invariants.md: invariant 4 stands where 2 is expected',
  ],
])('the reference check of docs/invariants.md reports %s', (_, files, fault) => {
  expect(broken({ ...SOUND, ...files })).toEqual([fault]);
});

test('the reference check finds citations of invariants in the singular, in lists and across the lines of a comment', () => {
  expect(
    citedInvariants(
      'Invariants 1, 5, 6 and 11; invariant\n# 2, `invariant 3: x`, [invariant 4](x.md), invariants of 9',
    ),
  ).toEqual([1, 5, 6, 11, 2, 3, 4]);
});

test('the reference check gives headings the anchors that GitHub gives them', () => {
  expect(
    headingsOf(
      '# A `b` & [c](d.md)\n## What `--compat verl` gives up\n## Same\n## Same\n```sh\n# no heading\n```\n## Größe, 2_x',
    ),
  ).toEqual(['a-b--c', 'what---compat-verl-gives-up', 'same', 'same-1', 'größe-2_x']);
});

function broken(files: Record<string, string>): string[] {
  const folder = mkdtempSync(path.join(tmpdir(), 'trialgate-references-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(path.join(folder, path.dirname(file)), { recursive: true });
    writeFileSync(path.join(folder, file), text);
  }
  return brokenReferences(folder, Object.keys(files));
}
