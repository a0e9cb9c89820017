import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdtemp, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADMIN_KEY, useGateway } from '../../tests/support/harness/gateways.ts';

const run = promisify(execFile);
const gateway = useGateway();
const BIN = join(import.meta.dirname, '../../node_modules/.bin');
const PATH = process.env['PATH'] ?? '';
let folder = '';
beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), 'trialgate-client-'))));
afterAll(() => rm(folder, { recursive: true }));

async function npm(cwd: string, ...args: string[]): Promise<void> {
  const env = { ...process.env, PATH: `${BIN}${delimiter}${PATH}` };
  await run('npm', [...args, '--offline', '--no-audit', '--no-fund', '--cache', join(folder, 'cache')], { cwd, env });
}

/** Returns a copy of the client's folder, so that nothing is built in the repository. */
async function copyClient(): Promise<string> {
  const copy = await mkdtemp(join(folder, 'source-'));
  const sources = (await readdir(import.meta.dirname)).filter((name) => /^[\w-]+\.ts$/.test(name));
  for (const name of ['package.json', 'tsconfig.json', ...sources])
    await cp(join(import.meta.dirname, name), join(copy, name));
  return copy;
}

/** Installs the client into an empty project, without network. Returns the project's folder. */
async function install(from: 'its packed file' | 'its folder'): Promise<string> {
  const [source, project] = [await copyClient(), await mkdtemp(join(folder, 'project-'))];
  await writeFile(join(project, 'package.json'), '{"type": "module"}');
  let what = source;
  if (from === 'its packed file') {
    await mkdir(join(source, 'packed'));
    await npm(source, 'pack', '--pack-destination', 'packed');
    what = join(source, 'packed', String((await readdir(join(source, 'packed')))[0]));
  }
  await npm(project, 'install', what);
  return project;
}

/** Returns the Node of this machine, which may be older than the repository's own. */
const plainNode = (): string =>
  PATH.split(delimiter)
    .filter((each) => !each.includes('node_modules'))
    .map((each) => join(each, 'node'))
    .find(existsSync) ?? process.execPath;

test.each(['its packed file', 'its folder'] as const)(
  'the TypeScript client that npm installs from %s is JavaScript, which opens a session under the machine’s own Node',
  async (from) => {
    const project = await install(from);
    await writeFile(
      join(project, 'use.js'),
      `import { TrialgateClient } from 'trialgate-client';
       import { Run, RunEnded } from 'trialgate-client/run';
       const [baseUrl, adminKey] = process.argv.slice(2);
       const { attempt } = await new TrialgateClient({ baseUrl, adminKey }).open('packed');
       console.log(attempt, new Run('first', { baseUrl, key: 'k' }).id, new RunEnded('first', 'completed', null).message);`,
    );
    const { stdout } = await run(plainNode(), ['use.js', gateway.gateway.url, ADMIN_KEY], { cwd: project });
    expect(stdout).toBe('1 first run first is completed\n');
  },
);

test('the packed TypeScript client has types, which accept a right program and refuse a wrong one', async () => {
  const project = await install('its packed file');
  const check = async (program: string) => {
    await writeFile(join(project, 'use.ts'), program);
    const args = ['--noEmit', '--strict', '--module', 'nodenext', '--types', '', '--ignoreConfig', 'use.ts'];
    return run(join(BIN, 'tsc'), args, { cwd: project }).then(
      () => '',
      ({ stdout }: { stdout: string }) => stdout,
    );
  };
  const right = `import { TrialgateClient, type Session } from 'trialgate-client';
    import { Run } from 'trialgate-client/run';
    const client = new TrialgateClient({ baseUrl: 'http://127.0.0.1:8700' });
    export const session: Promise<Session> = client.get('a');
    export const ended = new Run('first', { baseUrl: '', key: '' }).group('task', async ([trial]) => trial?.report(1));`;
  expect(await check(right)).toBe('');
  expect(await check(`${right}\nexport const wrong: Promise<string> = client.get('a');`)).toContain('use.ts(6,');
});
