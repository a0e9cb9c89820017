import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { testKind } from './test-kind.ts';

const FIELDS = "kind = 'mine'; capabilities = { networks: [] }; statement = 'a kind of my own';";
const METHODS =
  'pathsOf() {} pythonOf() {} prepare() {} start() {} copyIn() {} explain() {} run() {} copyOut() {} destroy() {}';

/** Tests a kind that is a class with these members, and is cancelled before the first check. */
async function testClass(members: string, print: (line: string) => void = () => {}): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-kind-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, 'mine.mjs');
  await writeFile(file, `class Mine { ${members} }\nexport default () => new Mine();\n`);
  await testKind(file, {}, AbortSignal.abort(new Error('cancelled')), print);
}

test('a kind of sandbox may be a class', async () => {
  const printed: string[] = [];
  const tested = testClass(`${FIELDS} host = {}; ${METHODS} find() {}`, (line) => printed.push(line));
  await expect(tested).rejects.toThrow('cancelled');
  expect(printed).toEqual(['a kind of my own']);
});

test('a kind of sandbox that lacks a member is refused, and the member is named', async () => {
  await expect(testClass(`${FIELDS} host = {}; ${METHODS}`)).rejects.toThrow(/it has no function find/);
  await expect(testClass(`${FIELDS} ${METHODS} find() {}`)).rejects.toThrow(/it has no host/);
});
