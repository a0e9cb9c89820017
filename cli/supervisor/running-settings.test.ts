import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { resolveConfig } from '../config/resolve.ts';
import { EXIT } from '../exit.ts';
import { homeFolders, INSTALLS } from '../folders.ts';
import { identify } from './processes.ts';
import { runningSettings } from './running-settings.ts';
import { readState, writeState } from './state.ts';

let home = '';
const SECRET = 'a secret of sixteen characters';
beforeAll(() => (home = mkdtempSync(join(tmpdir(), 'trialgate-settings-'))));
afterAll(() => rmSync(home, { recursive: true }));
beforeEach(() => {
  writeFileSync(join(home, 'trialgate.yaml'), '');
  const { config } = resolveConfig({ cwd: home, env: {}, flags: { home, gateways: '2', secret: SECRET } });
  const ports = { postgres: 5433, temporal: 7233, gateway: 9001 };
  const components = ['vllm'].map((name) => ({
    name,
    status: 'ready' as const,
    process: null,
    address: '',
    since: '',
    restarts: 0,
    detail: null,
    log: null,
    stopSignal: 'SIGTERM',
  }));
  // This process stands for the supervisor, so that the deployment counts as up.
  writeState(home, {
    supervisor: identify(process.pid),
    status: 'ready',
    failure: null,
    ports,
    engines: ['unix:/engine'],
    settings: runningSettings(config, ports),
    ranks: null,
    notes: [],
    components,
  });
});

function trialgate(args: string[], env: Record<string, string> = {}) {
  const all = { PATH: process.env['PATH'], HOME: home, TRIALGATE_HOME: home, ...env };
  return spawnSync(INSTALLS.node, [INSTALLS.main, ...args], { env: all, cwd: home, encoding: 'utf8' });
}

test('`up` changes nothing of a deployment that runs with other settings: it ends with exit code 2, names each of them without secrets, and says how to apply them', () => {
  writeFileSync(join(home, 'trialgate.yaml'), 'head_dtype: float32\n');
  const { status, stderr } = trialgate(['up', '--gateways', '4', '--engine-args', '--a b'], {
    TRIALGATE_SECRET: 'another secret of some length',
  });
  expect(stderr.split('\n').slice(0, -1)).toEqual([
    `error: Trialgate is already up in ${home}, with other settings than these, which were not applied:`,
    '  gateways: 2 → 4',
    '  secret: another value than the one that runs',
    '  head_dtype: model → float32',
    '  engine_args: – → --a b',
    "To apply this: `npx trialgate down`, then `npx trialgate up --gateways 4 --engine-args '--a b'`",
  ]);
  expect(status).toBe(EXIT.badInput);
});

test('`up` with another model names the command that switches the engine alone', () => {
  const { status, stderr } = trialgate(['up', '--model', 'org/name']);
  expect(stderr).toMatch(
    /\n {2}model: .*SmolLM2-135M-Instruct → org\/name\nTo apply this: `npx trialgate engine use org\/name`\n$/,
  );
  expect(status).toBe(EXIT.badInput);
  const misspelt = trialgate(['up', '--model', 'SmolLM2-135M-Instuct']);
  expect(misspelt.stderr).toMatch(/Did you mean .*SmolLM2-135M-Instruct\?/);
  expect(misspelt.stderr).not.toContain('engine use');
});

test('only its owner can read the state of a deployment, because arguments of its engine may be secret', () => {
  expect(statSync(homeFolders(home).state).mode & 0o777).toBe(0o600);
});

test('`config` writes nothing: it makes no secrets in place of deleted ones, and compares all settings but the secret ones', () => {
  rmSync(homeFolders(home).secrets);
  const before = readdirSync(home);
  const found = JSON.parse(
    trialgate(['config', '--json'], { TRIALGATE_SECRET: 'another secret of some length' }).stdout,
  );
  expect(Object.keys(found).filter((key) => 'running' in found[key])).toEqual(['gateway_port', 'gateways']);
  expect(readdirSync(home)).toEqual(before);
});

test.each([
  ['no settings', [], {}],
  ['the settings that run', ['--gateways', '2'], { TRIALGATE_SECRET: SECRET, TRIALGATE_MODEL: INSTALLS.smallModel }],
  ['any port', ['--gateway-port', '0'], {}],
])('`up` of a deployment that runs and is asked for %s says that it is already up', (_, flags, env) => {
  const { status, stdout, stderr } = trialgate(['up', '--no-install', ...flags], env);
  expect(stderr).toBe('');
  expect(stdout).toContain('already up');
  expect(status).toBe(EXIT.done);
});

test('`config` shows what a deployment runs with where that differs from the configured value, and no secret', () => {
  const env = { TRIALGATE_SECRET: 'another secret of some length', TRIALGATE_GATEWAY_PORT: '0' };
  const found = JSON.parse(trialgate(['config', '--json'], env).stdout);
  expect(found).toMatchObject({
    gateways: { value: 1, from: 'default', running: 2 },
    gateway_port: { value: 0, running: 9001 },
    secret: { value: '********', running: '********' },
  });
  expect(Object.keys(found).filter((key) => 'running' in found[key])).toEqual(['gateway_port', 'gateways', 'secret']);
  const { stdout } = trialgate(['config'], env);
  expect(stdout).toMatch(/^gateways +1 {2}\(default\) {2}\[runs with: 2\]$/m);
  expect(stdout).not.toContain('another secret');
  const state = readState(home);
  if (state) writeState(home, { ...state, supervisor: { pid: 0, ticks: 0 } });
  expect(trialgate(['config'], env).stdout).not.toContain('runs with');
});
