import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { testKind } from './test-kind.ts';

const FIELDS = "kind = 'mine'; capabilities = { networks: [] }; statement = 'a kind of my own';";
const METHODS =
  'pathsOf() {} pythonOf() {} prepare() {} start() {} copyIn() {} explain() {} run() {} copyOut() {} destroy() {}';

/** Writes a file into a new folder, and returns its path. */
async function fileWith(name: string, text: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-kind-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, name), text);
  return join(folder, name);
}

/** The file of a run for `train --iterations`. */
const runFile = (sandbox: string): Promise<string> =>
  fileWith('run.yaml', `model: m\ntasks: [none]\nsandbox: ${sandbox}\n`);

/** Tests a kind, and is cancelled before the first check. Returns what is printed. */
async function openedBy(named: string | undefined, options: { run?: string; runtime?: string }): Promise<string[]> {
  const printed: string[] = [];
  const tested = testKind(named, options, AbortSignal.abort(new Error('cancelled')), (line) => printed.push(line));
  const failure: unknown = await tested.catch((error: unknown) => error);
  if (failure instanceof Error && failure.message === 'cancelled') return printed;
  throw failure;
}

/** Tests a kind that is a class with these members. */
const testClass = async (members: string): Promise<string[]> =>
  openedBy(await fileWith('mine.mjs', `class Mine { ${members} }\nexport default () => new Mine();\n`), {});

test('a kind of sandbox may be a class', async () => {
  expect(await testClass(`${FIELDS} host = {}; ${METHODS} find() {}`)).toEqual(['a kind of my own']);
});

test('a kind of sandbox that lacks a member is refused, and the member is named', async () => {
  await expect(testClass(`${FIELDS} host = {}; ${METHODS}`)).rejects.toThrow(/it has no function find/);
  await expect(testClass(`${FIELDS} ${METHODS} find() {}`)).rejects.toThrow(/it has no host/);
});

test('a kind whose sandboxes lack `bash` or `python3` is refused, and no check is tried', async () => {
  const run =
    "run() { return { reason: 'exited', exitCode: 127, signal: null, stdout: '', stderr: 'bash: not found' }; }";
  const paths = "pathsOf() { return { work: '/', home: '/', tmp: '/', logs: '/' }; } pythonOf() { return 'python3'; }";
  const others =
    'prepare() {} start() { return { image: null }; } copyIn() {} explain() {} copyOut() {} destroy() {} find() {}';
  const module = `class Mine { ${FIELDS} host = {}; ${run} ${paths} ${others} }\nexport default () => new Mine();\n`;
  const printed: string[] = [];
  const tested = testKind(await fileWith('mine.mjs', module), {}, new AbortController().signal, (line) =>
    printed.push(line),
  );
  await expect(tested).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(/need `bash` and `python3`, but .* exit code 127: bash: not found/),
  });
  expect(printed).toEqual(['a kind of my own']);
});

test('a kind whose function fails is refused as bad input with its file, and told when it was given no settings', async () => {
  const file = await fileWith('mine.mjs', 'export default ({ region }) => { throw new Error(`no ${region}`); };\n');
  const run = await runFile('{ kind: mine, region: north }');
  await expect(openedBy(file, { run })).rejects.toMatchObject({
    code: 'bad_input',
    message: `${file}: its function failed: no north`,
  });
  await expect(openedBy(file, {})).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(/mine\.mjs: its function failed: .*region.*It was given no settings: .*--run/),
  });
});

test('a kind is tested with the settings of a run file, which names the kind if nothing else does', async () => {
  const kubeconfig = await fileWith('kubeconfig', 'apiVersion: v1\nkind: Config\n');
  vi.stubEnv('KUBECONFIG', kubeconfig);
  onTestFinished(() => void vi.unstubAllEnvs());
  const run = await runFile('{ kind: kubernetes, context: of-the-run }');
  for (const kind of ['kubernetes', undefined])
    await expect(openedBy(kind, { run })).rejects.toThrow('there is no context "of-the-run"');
});

test('a run file of another kind, a runtime beside a run file, and neither kind nor run file are refused', async () => {
  const run = await runFile('bubblewrap');
  await expect(openedBy('slurm', { run })).rejects.toThrow(
    `--run: the sandbox of ${run} is bubblewrap, and the kind to test is slurm`,
  );
  await expect(openedBy('container', { run, runtime: 'runsc' })).rejects.toThrow('--runtime: with --run it is');
  for (const options of [{}, { run }])
    await expect(openedBy('./mine.mjs', { ...options, runtime: 'runsc' })).rejects.toThrow(
      '--runtime: only `container` has runtimes, and the kind is ./mine.mjs',
    );
  await expect(openedBy(undefined, {})).rejects.toThrow('which kind of sandbox?');
});

test('a kind of one’s own is given the settings of a run file', async () => {
  const members = `constructor({ kind, region }) { this.statement = kind + ' in ' + region; } ${METHODS} find() {}`;
  const fields = "kind = 'mine'; capabilities = { networks: [] }; host = {};";
  const module = `class Mine { ${fields} ${members} }\nexport default (setting) => new Mine(setting);\n`;
  const file = await fileWith('mine.mjs', module);
  const run = await runFile('{ kind: mine, region: north }');
  expect(await openedBy(file, { run })).toEqual(['mine in north']);
  const other = await runFile('slurm');
  await expect(openedBy(file, { run: other })).rejects.toThrow(/is slurm, and the kind to test is mine/);
});
