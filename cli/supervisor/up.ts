import { spawn } from 'node:child_process';
import { closeSync, statSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TrialgateError, type ErrorCode } from '../../core/errors.ts';
import { variableOf, type SettingKey } from '../config/settings.ts';
import { homeFolders, INSTALLS } from '../folders.ts';
import type { Asked } from '../options.ts';
import { errorSummary, lastLines, openLog } from './logs.ts';
import { identify, isAlive } from './processes.ts';
import { requireSameSettings } from './require-same-settings.ts';
import { livingState, readState, type StackState } from './state.ts';

export type UpOptions = { asked: Asked; onChange(state: StackState): void };

/**
 * Starts the background supervisor and returns its state when all is ready. Returns the state of a living one with `already`.
 * When two starts race, the loser waits for the winner's supervisor.
 * @throws TrialgateError `bad_input` when one that lives runs with other settings than those that are asked for
 */
export async function up(options: UpOptions, signal: AbortSignal): Promise<{ state: StackState; already: boolean }> {
  const { asked } = options;
  const { home } = asked.config;
  const before = livingState(home);
  if (before?.status === 'ready') {
    requireSameSettings(asked, before);
    return { state: before, already: true };
  }
  const log = path.join(homeFolders(home).logs, 'supervisor.log');
  const logFrom = statSync(log, { throwIfNoEntry: false })?.size ?? 0;
  const pid = before ? null : spawnSupervisor(asked, log);
  const own = pid === null ? null : identify(pid);
  let quietSince = Date.now();
  for (;;) {
    const state = livingState(home);
    if (state && state.status !== 'failed') {
      quietSince = Date.now();
      options.onChange(state);
      if (state.status === 'ready') {
        // Another start may have won the race, with other settings.
        requireSameSettings(asked, state);
        return { state, already: false };
      }
    }
    const ended = !state && !(own && isAlive(own));
    if (ended && Date.now() - quietSince > 500) throw startFailure(home, errorSummary(lastLines(log, 5, logFrom)));
    if (signal.aborted) {
      if (own) await stopSupervisor(own);
      signal.throwIfAborted();
    }
    await sleep(100);
  }
}

/**
 * Passes flags as variables, because every user can see a process's arguments. The model is no secret and stays a flag: a variable would
 * count as the configured model, which `engine use` chooses another over.
 */
function spawnSupervisor({ config: { home }, flags, file }: Asked, logFile: string): number {
  const { model, ...others } = flags;
  const given = Object.entries(others).map(([key, value]) => [variableOf(key as SettingKey), value] as const);
  const log = openLog(logFile);
  const args = [
    INSTALLS.main,
    'supervise',
    '--into-file',
    ...(file ? ['--config', file] : []),
    ...(model === undefined ? [] : ['--model', model]),
  ];
  const child = spawn(INSTALLS.node, args, {
    detached: true,
    stdio: ['ignore', log, log],
    env: { ...process.env, ...Object.fromEntries(given), TRIALGATE_HOME: home },
  });
  closeSync(log);
  child.unref();
  if (child.pid === undefined)
    throw new TrialgateError('missing_prerequisite', `${INSTALLS.node} cannot be started: run \`npm ci\``);
  return child.pid;
}

async function stopSupervisor(own: { pid: number; ticks: number }): Promise<void> {
  if (isAlive(own)) process.kill(own.pid, 'SIGTERM');
  while (isAlive(own)) await sleep(50);
}

function startFailure(home: string, output: string): TrialgateError {
  const state = readState(home);
  if (state?.failure) return new TrialgateError(codeOf(state.failure.code), state.failure.message);
  if (state?.status === 'stopped')
    return new TrialgateError('missing_prerequisite', 'Trialgate was stopped while it was starting');
  return new TrialgateError(
    'missing_prerequisite',
    output.replace(/^error: /, '') ||
      `the supervisor ended without any output: see ${path.join(homeFolders(home).logs, 'supervisor.log')}`,
  );
}

const codeOf = (code: string): ErrorCode => (code === 'bad_input' ? 'bad_input' : 'missing_prerequisite');
