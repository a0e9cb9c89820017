import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { REPOSITORY } from '../../../core/repository.ts';
import { CHECKS } from './checks.ts';

it('docs/sandboxes.md lists each sentence that a kind of sandbox must keep', () => {
  const page = readFileSync(join(REPOSITORY, 'docs/sandboxes.md'), 'utf8');
  const listed = page.slice(page.indexOf('<!-- checks -->'), page.indexOf('<!-- end of checks -->'));
  expect(listed.match(/^- .*$/gm)).toEqual(
    CHECKS.map(({ sentence, isLarge }) => `- ${sentence}${isLarge ? ' (`--large`)' : ''}`),
  );
});
