import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import { LONGEST } from './longest-first.ts';

test('each file that is to begin first exists', () => {
  expect(LONGEST.filter((file) => !existsSync(path.join(REPOSITORY, file)))).toEqual([]);
});
