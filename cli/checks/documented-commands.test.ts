import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import { commandsIn, faultIn } from './documented-commands.ts';

const faultsIn = (markdown: string): string[] => commandsIn(markdown).flatMap((command) => faultIn(command) ?? []);

/** All documents that say what a user types today. */
const documents = spawnSync('git', ['ls-files', '*.md', ':!CHANGELOG.md'], { cwd: REPOSITORY, encoding: 'utf8' })
  .stdout.split('\n')
  .filter(Boolean);

test('the command line takes every command of ours that a document shows', () => {
  const shown = documents.map((file) => [file, readFileSync(join(REPOSITORY, file), 'utf8')] as const);
  expect(shown.flatMap(([, text]) => commandsIn(text)).length).toBeGreaterThan(100);
  expect(shown.flatMap(([file, text]) => faultsIn(text).map((fault) => `${file}: ${fault}`))).toEqual([]);
});

test.each([
  ['an unknown verb', '```sh\nnpx trialgate trian run.yaml\n```', "unknown command 'trian'"],
  ['an unknown verb of a group', '```\nnpx trialgate engine jion http://a:1\n```', 'too many arguments'],
  ['an unknown option', '```\nnpx trialgate train run.yaml --itertions 3\n```', "unknown option '--itertions'"],
  ['an option of another verb', 'Use `npx trialgate down --model M`.', "unknown option '--model'"],
  ['an option without its value', '```\nnpx trialgate train run.yaml --run\n```', 'argument missing'],
  ['a missing argument', '    npx trialgate train\n', 'missing required argument'],
  ['too many arguments', 'Then `npx trialgate down now`.', 'too many arguments'],
  ['a sentence without `npx trialgate`', '`engine list --jsno` says it.', "unknown option '--jsno'"],
  ['a second line', '```\nnpx trialgate up \\\n  --modle M\n```', "unknown option '--modle'"],
])('the check of documented commands refuses %s', (_, markdown, fault) => {
  expect(faultsIn(markdown)).toEqual([expect.stringContaining(fault)]);
});

test.each([
  ['comments and pipes', "```\n$ TRIALGATE_DEVICE=cpu npx trialgate show first --json | jq '.x > 1'   # a table\n```"],
  ['a command in a command', '```\nexport $(npx trialgate key RUN)\n```'],
  ['quoted values', "```\nnpx trialgate up --engine-args '--enable-lora --max-loras 3'\n```"],
  ['help', '`npx trialgate gateway --help`, `npx trialgate`'],
  [
    'what a sentence leaves out',
    '`npx trialgate train`, `npx trialgate up …`, `worker --only`, `trialgate worker --only workflows`',
  ],
  ['other programs', '```\nnpx vitest run\nexport A=1\n```\n`export A=--b`, `temporal workflow list --query Q`'],
])('the check of documented commands takes %s', (_, markdown) => {
  expect(faultsIn(markdown)).toEqual([]);
});
