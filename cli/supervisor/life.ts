import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, statSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { TrialgateError } from '../../core/errors.ts';
import type { Component } from './component.ts';
import { errorSummary, lastLines, openLog } from './logs.ts';
import { endGroup, identify, type ProcessId } from './processes.ts';
import type { ComponentState } from './state.ts';

export type Report = (change: Partial<ComponentState>) => void;
type Context = { log: string; report: Report; whenReady: (names: string[], signal: AbortSignal) => Promise<void> };

/** A component that ends sooner than this after it was ready crashes repeatedly; a later end is a separate accident. */
const STABLE_MS = 60_000;
/** Tries before a component counts as failing. There are few before it was ever ready, because then the cause is rarely chance. */
const TRIES = { first: 3, later: 5 };
const HEALTH_EVERY_MS = 3_000;

/** Returns the milliseconds before the next start: next to none after an accident, up to half a minute when it keeps ending. */
export const backoff = (quickEnds: number): number => (quickEnds <= 1 ? 100 : Math.min(30_000, 250 * 2 ** quickEnds));

/** Starts a component and restarts it whenever it ends, until `signal` aborts; then ends it. Never rejects. */
export async function keepAlive(component: Component, context: Context, signal: AbortSignal): Promise<void> {
  let quickEnds = 0;
  let everReady = false;
  let restarts = 0;
  while (!signal.aborted) {
    let readyAt: number | null = null;
    const onReady = (): void => {
      everReady = true;
      readyAt = Date.now();
    };
    const reason = await runOnce(component, context, onReady, signal).catch((error: unknown) => error);
    if (signal.aborted) break;
    quickEnds = readyAt !== null && Date.now() - readyAt > STABLE_MS ? 1 : quickEnds + 1;
    const hopeless = !everReady && reason instanceof TrialgateError;
    const failing = hopeless || quickEnds >= (everReady ? TRIES.later : TRIES.first);
    const detail = reason instanceof Error ? reason.message : String(reason);
    context.report({ status: failing ? 'failing' : 'restarting', detail, process: null, restarts: ++restarts });
    await sleep(backoff(quickEnds), undefined, { signal }).catch(() => {});
  }
  context.report({ status: 'stopped', process: null, detail: null });
}

/**
 * Runs a component once, from its preparation to the end of its process group. Returns the reason of the end.
 * @throws TrialgateError when no other start can succeed
 */
async function runOnce(
  component: Component,
  context: Context,
  onReady: () => void,
  signal: AbortSignal,
): Promise<string> {
  await context.whenReady(component.needs, signal);
  context.report({ status: 'starting' });
  await component.prepare?.(signal);
  signal.throwIfAborted();
  const logFrom = statSync(context.log, { throwIfNoEntry: false })?.size ?? 0;
  const child = spawnIn(component, context.log);
  const ended = endOf(child);
  const over = new AbortController();
  void ended.then(() => over.abort());
  if (child.pid === undefined) return `cannot be started: ${await ended}`;
  const leader = identify(child.pid);
  context.report({ process: leader });
  const life = AbortSignal.any([signal, over.signal]);
  let wasReady = false;
  const nowReady = (): void => {
    wasReady = true;
    onReady();
  };
  try {
    const trouble = await serve(component, leader, context, nowReady, life).catch((error: unknown) => {
      if (!life.aborted) throw error;
    });
    if (trouble) return trouble;
    if (signal.aborted) return 'stopped';
    const how = await ended;
    const fault = wasReady ? null : component.faultIn?.(lastLines(context.log, 1_000, logFrom));
    if (fault) throw new TrialgateError('bad_input', fault);
    // A process that was killed wrote no reason to its log.
    const last = how.includes('SIGKILL') ? '' : errorSummary(lastLines(context.log, 12, logFrom));
    return `${how}${last ? `: ${last}` : ''}`;
  } finally {
    await endGroup(leader, component.stopSignal, component.stopWithinMs);
    component.afterEnd?.();
  }
}

/** Waits until the component is ready and then until its process ends. Returns a sentence earlier when the process must be ended from outside. */
async function serve(
  component: Component,
  leader: ProcessId,
  context: Context,
  onReady: () => void,
  life: AbortSignal,
): Promise<string | undefined> {
  const bound = AbortSignal.timeout(component.readyWithinMs);
  while (!(await component.isReady(leader.pid, life).catch(() => false))) {
    if (bound.aborted) {
      const last = errorSummary(lastLines(context.log, 12));
      return `not ready after ${component.readyWithinMs / 1000} s${last ? `: ${last}` : ''}`;
    }
    await sleep(150, undefined, { signal: life });
  }
  life.throwIfAborted();
  await component.afterReady?.(life);
  onReady();
  context.report({ status: 'ready', detail: null });
  while (await isHealthy(component, life)) await sleep(HEALTH_EVERY_MS, undefined, { signal: life });
  return life.aborted ? undefined : 'its process lives but reports that it cannot serve any more';
}

async function isHealthy(component: Component, life: AbortSignal): Promise<boolean> {
  return component.isHealthy ? component.isHealthy(life).catch(() => true) : true;
}

function spawnIn(component: Component, log: string): ChildProcess {
  const { file, args, env, cwd, user } = component.launch();
  const descriptor = openLog(log);
  try {
    // It has its own session and process group, so that it can be ended as a whole and our terminal's Ctrl-C reaches only us.
    return spawn(file, args, { env, cwd, detached: true, stdio: ['ignore', descriptor, descriptor], ...user });
  } finally {
    closeSync(descriptor);
  }
}

function endOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(signal ? `ended by ${signal}` : `ended with exit code ${code}`));
  });
}
