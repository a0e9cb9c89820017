import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Image, SandboxBackend } from '../backend.ts';
import { CHECKS, type Check } from './checks.ts';
import { openContext, Violation } from './context.ts';

export type CheckResult = {
  sentence: string;
  /** `skipped`: the kind says that it cannot do this. `error`: the check itself could not be made. */
  outcome: 'passed' | 'failed' | 'skipped' | 'error';
  /** An explanation for people if the check did not pass; otherwise null. */
  reason: string | null;
  seconds: number;
};

type Options = {
  signal: AbortSignal;
  /** True: also the checks that take long or much disk. */
  large?: boolean;
  /** The image of every sandbox. Absent: the sandboxes have none. */
  image?: Image | null;
  /** Is told each result as it comes. */
  onResult?: (result: CheckResult) => void;
};

/** Tries every sentence about sandboxes on one kind, each in an empty deployment of its own. */
export async function runChecks(
  backend: SandboxBackend,
  { signal, large = false, image = null, onResult = () => {} }: Options,
): Promise<CheckResult[]> {
  const results: CheckResult[] = [];
  for (const check of CHECKS) {
    signal.throwIfAborted();
    if (check.isLarge && !large) continue;
    const result = await runCheck(backend, check, signal, image);
    signal.throwIfAborted();
    results.push(result);
    onResult(result);
  }
  return results;
}

export async function runCheck(
  backend: SandboxBackend,
  check: Check,
  signal: AbortSignal,
  image: Image | null = null,
): Promise<CheckResult> {
  const { sentence } = check;
  if (check.needs && !check.needs(backend.capabilities))
    return { sentence, outcome: 'skipped', reason: 'this kind says that it cannot', seconds: 0 };
  const home = await mkdtemp(join(tmpdir(), 'trialgate-check-'));
  await chmod(home, 0o755);
  const begin = performance.now();
  const ended = (outcome: CheckResult['outcome'], reason: string | null): CheckResult => ({
    sentence,
    outcome,
    reason,
    seconds: (performance.now() - begin) / 1000,
  });
  try {
    await using context = openContext(backend, { home, image, signal });
    await check.run(context);
    return ended('passed', null);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return ended(error instanceof Violation ? 'failed' : 'error', message);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}
