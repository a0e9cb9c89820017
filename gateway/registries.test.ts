import { expect, test } from 'vitest';
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { REPOSITORY } from '../core/repository.ts';
import { PROTOCOL_NAMES } from '../store/schema.ts';
import { NAMED } from './engines/all.ts';
import { PROTOCOLS } from './protocols/all.ts';

/** What runs besides the gateway, and the gateway. */
const PRODUCT = '{core,store,gateway,activities,workflows,cli,deploy,clients,gpu-workers}/**/*.{ts,mjs,py}';
const isTest = (file: string) => /\.test\.ts$|_test\.py$|(?:^|\/)(?:node_modules|tests)\//.test(file);
const withoutComments = (text: string) => text.replaceAll(/\/\*[\s\S]*?\*\/|^\s*(?:\/\/|#).*$/gm, '');

/** Help texts, which have `openai+` as their example, and mlflow's name of a format of messages. */
const EXAMPLES = [
  ...['evaluate', 'relay-worker', 'try'].map((verb) => `cli/commands/${verb}.ts`),
  'cli/config/settings.ts',
  'cli/log/trial-trace.ts',
];

test.each(NAMED)(
  'the kind of engine `$name` is named in its folder alone: all else has it from the registry',
  ({ name }) => {
    const word = new RegExp(`\\b${name}\\\\?\\+|(['"\`])${name}\\1`);
    const named = globSync(PRODUCT, { cwd: REPOSITORY, exclude: ['**/node_modules'] }).filter(
      (file) =>
        !isTest(file) &&
        !file.startsWith(`gateway/engines/${name}/`) &&
        word.test(withoutComments(readFileSync(path.join(REPOSITORY, file), 'utf8'))),
    );
    expect(named.toSorted()).toEqual(EXAMPLES);
  },
);

test('each protocol that the record can name is served', () => {
  expect(PROTOCOLS.map(({ name }) => name).toSorted()).toEqual(PROTOCOL_NAMES.toSorted());
});
