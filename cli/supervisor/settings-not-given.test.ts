import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { holdFreePort } from '../../core/free-port.ts';
import { resolveConfig, type Flags } from '../config/resolve.ts';
import { INSTALLS } from '../folders.ts';
import { environment, type Component } from './component.ts';
import { warnOfSettingsNotGiven } from './settings-not-given.ts';
import { startStack } from './stack.ts';
import { readState, writeState } from './state.ts';

const never = new AbortController().signal;
let home = '';
beforeAll(() => (home = mkdtempSync(join(tmpdir(), 'trialgate-not-given-'))));
afterAll(() => rmSync(home, { recursive: true }));
beforeEach(() => writeFileSync(join(home, 'trialgate.yaml'), ''));

/** Starts a deployment with these settings and stops it. Its only component is a program that is ready at once, or that cannot start. */
async function startAndStop(flags: Record<string, string>, script = 'setInterval(() => {}, 1000)'): Promise<void> {
  const { config } = resolveConfig({ cwd: home, env: {}, flags: { home, ...flags } });
  const program: Component = {
    ...{ name: 'program', address: '', needs: [], readyWithinMs: 60_000 },
    ...{ stopSignal: 'SIGTERM', stopWithinMs: 5_000 },
    launch: () => ({ file: process.execPath, args: ['-e', script], env: environment({}) }),
    isReady: async () => !script.includes('exit'),
  };
  const stack = await startStack({ config, components: () => ({ components: [program], notes: [] }) }, never);
  await stack.stop();
  // This process was the supervisor, and it lives.
  const state = readState(home);
  if (state) writeState(home, { ...state, supervisor: { pid: 0, ticks: 0 } });
}

/** Returns what `up` says that starts nothing. */
function up(...flags: string[]): Promise<string> {
  const args = [INSTALLS.main, 'up', '--no-install', ...flags];
  const env = { PATH: process.env['PATH'], HOME: home, TRIALGATE_HOME: home, TRIALGATE_UNSANDBOXED: 'true' };
  return text(spawn(INSTALLS.node, args, { env, cwd: home, stdio: ['ignore', 'ignore', 'pipe'] }).stderr);
}

/** Returns what the next start says. */
function warningOf(flags: Flags = {}): string {
  const said = vi.spyOn(console, 'error').mockReturnValue();
  warnOfSettingsNotGiven({
    ...resolveConfig({ cwd: home, env: { TRIALGATE_HOME: home }, flags }),
    flags,
    file: undefined,
  });
  const lines = said.mock.calls.flat().join('\n');
  said.mockRestore();
  return lines;
}

test('`up` warns when the last start had settings that this one lacks, names them, and says how to give them again or to keep them', async () => {
  await startAndStop({
    engine_args: '--enable-auto-tool-choice --tool-call-parser hermes',
    secret: 'a secret of mine',
  });
  // A start with a folder that has no model ends before it starts anything.
  const said = await up('--model', home);
  expect(said).toMatch(/^WARNING: the last start had settings that this one lacks\. A run that has not ended/);
  expect(said).toContain('\n  engine_args: --enable-auto-tool-choice --tool-call-parser hermes (now –)\n');
  expect(said).toContain('\n  secret: had another value\n');
  expect(said).toMatch(
    /then `npx trialgate up --secret SECRET --model \S+ --engine-args '--enable-auto-tool-choice --tool-call-parser hermes'`/,
  );
  expect(said).toContain('write them into trialgate.yaml (secret, engine_args)');
  expect(said).not.toContain('a secret of mine');
});

test('an `up` that ends because a port is taken says nothing of settings, because no run would go on', async () => {
  await startAndStop({ engine_args: '--enable-auto-tool-choice' });
  const taken = await holdFreePort('127.0.0.1');
  const said = await up('--gateway-port', String(taken.port)).finally(() => taken.close());
  expect(said).toContain(`port ${taken.port} on 127.0.0.1`);
  expect(said).not.toContain('WARNING');
});

test('a start does not warn of settings that a flag or trialgate.yaml gives, also with another value', async () => {
  await startAndStop({ engine_args: '--a b', max_model_len: '512', ranks: '2' });
  writeFileSync(join(home, 'trialgate.yaml'), 'engine_args: --a b\nmax_model_len: 1024\n');
  expect(warningOf({ ranks: '1' })).toBe('');
  expect(warningOf()).toMatch(/\n {2}ranks: 2 \(now 1\)\nTo start/);
});

test('a start that did not become ready does not count as the last one', async () => {
  await startAndStop({ engine_args: '--works' });
  await expect(startAndStop({ engine_args: '--typo' }, 'process.exit(1)')).rejects.toThrow('program cannot start');
  expect(warningOf()).toContain('engine_args: --works (now –)');
});

test('a first start has nothing to warn of', () => {
  rmSync(join(home, 'state.json'));
  expect(warningOf()).toBe('');
});
