import type { Deps } from '../deps.ts';
import { closeSandbox } from './close-sandbox.ts';
import { findOpenTrial } from './find-open-trial.ts';
import { readWait } from './read-wait.ts';
import { openTrial } from './open-trial.ts';
import { runAgent } from './run-agent.ts';
import { sealTrial } from './seal-trial.ts';
import { verifyTrial } from './verify-trial.ts';

/** Activities that only read and write a trial's record. */
export const trialActivities = (deps: Deps) => ({
  findOpenTrial: findOpenTrial(deps),
  readWait: readWait(deps),
  sealTrial: sealTrial(deps),
});

/** The activity that waits until a host has a slot for a sandbox, and opens the trial there. */
export const sandboxActivities = (deps: Deps) => ({
  openTrial: openTrial(deps),
});

/** Activities that run on the host that has the trial's sandbox. */
export const hostActivities = (deps: Deps) => ({
  closeSandbox: closeSandbox(deps),
  runAgent: runAgent(deps),
  verifyTrial: verifyTrial(deps),
});
