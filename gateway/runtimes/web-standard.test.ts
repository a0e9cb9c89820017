import { globSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';

/** The parts of Node that docs/workers.md names, with the reasons. */
const ALLOWED = {
  'gateway/http/bodies/read-body.ts': ['node:zlib'],
  'gateway/record/retry.ts': ['node:crypto'],
  'store/calls/content.ts': ['node:crypto'],
  'store/calls/to-rows.ts': ['Buffer', 'node:crypto'],
  'store/database.ts': ['node:net'],
  'core/keys.ts': ['Buffer', 'node:crypto'],
  'store/queries/claim-reply.ts': ['Buffer'],
  'store/queries/read-blob.ts': ['Buffer'],
  'store/queries/read-turn.ts': ['Buffer'],
  'store/tables/column-types.ts': ['Buffer'],
};
/** Files that run only on Node. The Worker does not import them. */
const NODES_OWN = [
  '**/*.test.ts',
  'core/free-port.ts',
  'core/lock.ts',
  'core/nearest-path.ts',
  'core/process-stat.ts',
  'core/repository.ts',
  'core/utf8.ts',
  'gateway/runtimes/**',
  'store/queries/migrate.ts',
];

test('the core of the gateway uses exactly the parts of Node that docs/workers.md names', () => {
  const used = globSync('{core,gateway,store}/**/*.ts', { cwd: REPOSITORY, exclude: NODES_OWN }).map(
    (file): [string, string[]] => {
      const text = readFileSync(`${REPOSITORY}/${file}`, 'utf8');
      return [
        file,
        [...new Set(text.match(/(?<=from ')node:\w+|\bBuffer\b|\bprocess\.\w+|\bsetImmediate\b/g))].toSorted(),
      ];
    },
  );
  expect(Object.fromEntries(used.filter(([, names]) => names.length > 0))).toEqual(ALLOWED);
});
