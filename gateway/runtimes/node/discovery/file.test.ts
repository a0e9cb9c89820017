import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Followed } from '../../../../tests/support/harness/followed.ts';
import { until } from '../../../../tests/support/harness/until.ts';
import type { Finding } from './discovery.ts';
import { file, findIn, settled } from './file.ts';

let folder: string;
let path: string;
let followed: Followed;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'engines-file-'));
  path = join(folder, 'engines.yaml');
});
afterEach(async () => {
  await followed?.stop();
  rmSync(folder, { recursive: true });
});

function follow(): void {
  followed = new Followed(file, { engines: [], enginesFile: path });
}

const next = async (): Promise<Finding | undefined> => {
  await until(() => followed.findings.length > 0);
  return followed.findings.shift();
};

/** Replaces the file by another, as editors and deployment tools do. */
function replace(content: string): void {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}

const serving = (url: string) => ({ url, draining: false });

test('a list in YAML or JSON is read, and again when the file is replaced by another or written anew', async () => {
  writeFileSync(path, '- http://a:1/\n- url: unix:/b.sock\n  drain: true\n- {url: openai+https://c}\n');
  follow();
  expect(await next()).toEqual({
    engines: [serving('http://a:1'), { url: 'unix:/b.sock', draining: true }, serving('openai+https://c')],
  });
  replace(JSON.stringify(['http://d:1', { url: 'http://e:1', drain: false }], null, '\t'));
  expect(await next()).toEqual({ engines: [serving('http://d:1'), serving('http://e:1')] });
  writeFileSync(path, '[]');
  expect(await next()).toEqual({ engines: [] });
});

test('a ConfigMap whose link points to another folder is read again', async () => {
  for (const name of ['one', 'two']) {
    mkdirSync(join(folder, name));
    writeFileSync(join(folder, name, 'engines.yaml'), `- http://${name}:1\n`);
  }
  symlinkSync('one', join(folder, '..data'));
  symlinkSync(join('..data', 'engines.yaml'), path);
  follow();
  expect(await next()).toEqual({ engines: [serving('http://one:1')] });
  symlinkSync('two', join(folder, '..data_tmp'));
  renameSync(join(folder, '..data_tmp'), join(folder, '..data'));
  expect(await next()).toEqual({ engines: [serving('http://two:1')] });
});

test('a missing file is a failure, which ends when a good file is there', async () => {
  follow();
  expect(await next()).toEqual({ failure: expect.stringContaining(`${path} cannot be read: ENOENT`) });
  replace('- http://a:1\n');
  expect(await next()).toEqual({ engines: [serving('http://a:1')] });
});

test.each([
  ['', '(top level): expected a list of engines, such as `- http://host:port`'],
  ['engines: []', '(top level): expected a list of engines, such as `- http://host:port`'],
  ['- http://a:1\n- ftp://b\n', '1: expected an engine: http://host:port'],
  ['- {url: "http://a:1", drian: true}', '0.drian: unknown setting, did you mean `drain`?'],
  ['- {url: "http://a:1", drain: 1}', '0.drain: expected true or false'],
  ['- http://a:1\n- http://a:1/\n', '1: names http://a:1 a second time'],
  ['- relay\n', '0: expected an engine: http://host:port'],
  ['- [1', 'is neither JSON nor YAML: '],
])('the content %j is a failure that says where and what', async (content, message) => {
  const found = await findIn(content, 'engines.yaml');
  expect(found).toEqual({ failure: expect.stringContaining(message) });
  expect(found).toEqual({ failure: expect.stringMatching(/^engines\.yaml/) });
});

test('content that only one read finds, as in the middle of a write, is ignored', async () => {
  async function* reads() {
    for (const text of ['a', 'a', 'a', 'half', 'b', 'b', 'gone', 'b', 'b', 'a', 'a']) yield { text };
  }
  const seen: unknown[] = [];
  for await (const content of settled(reads())) seen.push(content);
  expect(seen).toEqual([{ text: 'a' }, { text: 'b' }, { text: 'a' }]);
});
