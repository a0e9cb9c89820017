import { existsSync } from 'node:fs';
import path from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { INSTALLS } from '../folders.ts';
import { diskLack, NEEDED_GB, systemLack } from '../prerequisites.mjs';
import { makePrivate } from '../private-folder.ts';
import { progressLine } from '../progress.ts';
import { deviceOf } from '../supervisor/device.ts';
import { awaitLock } from '../../core/lock.ts';
import { lockOwner } from '../supervisor/socket-owner.ts';
import { forget, isDone, markDone, wasRun } from './stamps.ts';
import { discardTorn, stepsFor, type Step } from './steps.ts';

export type InstallOptions = {
  device: 'auto' | 'cpu' | 'cuda';
  python?: string;
  /** True to try optional steps again that could make nothing before. `up` does not, so that no start waits for them. */
  retriesOptional?: boolean;
};
export type InstallProgress = { step: number; steps: number; title: string; line: string };

export const INSTALL_LOG = path.join(INSTALLS.root, 'logs/install.log');

/**
 * Installs what is missing. A finished step has a stamp and is not repeated; the next call repairs an interrupted install.
 * @returns the titles of the steps that ran, and why optional steps made nothing. @throws TrialgateError `missing_prerequisite`.
 */
export async function install(
  options: InstallOptions & { onProgress?: (progress: InstallProgress) => void },
  signal: AbortSignal,
): Promise<{ done: string[]; notMade: string[] }> {
  refuse(systemLack());
  makePrivate(INSTALLS.root);
  const device = deviceOf(options.device);
  const done: string[] = [];
  const notMade: string[] = [];
  if (openSteps(options, device).length === 0) return { done, notMade };
  const report = (progress: InstallProgress): void => options.onProgress?.(progress);
  const lock = await awaitLock(INSTALLS.root, 'install', signal, () =>
    report({
      step: 0,
      steps: 0,
      title: 'waiting',
      line: `${lockOwner(INSTALLS.root, 'install') ?? 'another process'} installs here now`,
    }),
  );
  try {
    discardTorn();
    const open = openSteps(options, device);
    if (!open.every(({ isOptional }) => isOptional)) refuse(diskLack(INSTALLS.root, NEEDED_GB[device]));
    for (const [position, step] of open.entries()) {
      const at = { step: position + 1, steps: open.length, title: step.title };
      report({ ...at, line: '' });
      forget(step.name);
      let last = step.title;
      await step.run(signal, (line) => report({ ...at, line: (last = line) }));
      markDone(step);
      if (existsSync(step.makes)) done.push(step.title);
      else notMade.push(last);
    }
    return { done, notMade };
  } finally {
    await lock.release();
  }
}

/** Installs with progress on the terminal, and prints a sentence at the end when something was installed. */
export async function installWithProgress(options: InstallOptions, signal: AbortSignal): Promise<void> {
  const line = progressLine();
  const started = Date.now();
  const onProgress = ({ step, steps, title, line: detail }: InstallProgress): void => {
    const head = steps ? `install ${step}/${steps}: ${title}` : title;
    line.show(detail ? `${head}: ${detail}` : head, head);
  };
  try {
    const { done, notMade } = await install({ ...options, onProgress }, signal);
    line.end();
    if (done.length) console.error(`installed in ${Math.round((Date.now() - started) / 1000)} s: ${done.join(', ')}`);
    for (const why of notMade) console.error(`WARNING: ${why}`);
  } finally {
    line.end();
  }
}

/** Returns the steps that an install would run now. */
export function openSteps(options: InstallOptions, device = deviceOf(options.device)): Step[] {
  const steps = stepsFor(device, options.python, INSTALL_LOG);
  const open = steps.filter((step) => isOpen(step, options.retriesOptional));
  // A new environment is empty, so every step that installs into it must run again.
  return open[0] === steps[0] ? steps : open;
}

export function isOpen(step: Step, retriesOptional = false): boolean {
  return step.isOptional && !retriesOptional ? !wasRun(step) : !isDone(step);
}

/** @throws TrialgateError `missing_prerequisite` when something is missing */
function refuse(lack: string | null): void {
  if (lack !== null) throw new TrialgateError('missing_prerequisite', lack);
}
