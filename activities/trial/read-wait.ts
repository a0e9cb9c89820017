import { readEngineWait } from '../../store/queries/read-engine-wait.ts';
import type { Deps } from '../deps.ts';
import { MOST_EXCUSED_ATTEMPTS } from './judge-agent-end.ts';
import { countExcused, doEnginesAnswer } from './read-gateway-evidence.ts';

/** How long an attempt has waited for its engine, and whether that may excuse its end. */
export type Wait = { seconds: number; isExcuse: boolean };

/**
 * Reads it. A wait that other trials shared is never the agent's doing. One that only its own calls had excuses two attempts of a trial, or
 * any number while the engines answer no call of the run, as a failed call does (`judgeAgentEnd`).
 */
export const readWait =
  ({ db }: Pick<Deps, 'db'>) =>
  async (key: { trialId: string; attempt: number }): Promise<Wait> => {
    const { seconds, isShared } = await readEngineWait(db, key);
    if (seconds === 0 || isShared) return { seconds, isExcuse: isShared };
    const isFew = (await countExcused(db, key.trialId)) < MOST_EXCUSED_ATTEMPTS;
    return { seconds, isExcuse: isFew || !(await doEnginesAnswer(db, key.trialId)) };
  };

/** The reason of an attempt that ended because it waited. */
export const waitReason = (seconds: number): string =>
  `it waited ${Math.round(seconds)} s for the engine: \`npx trialgate status\` says how fast the engines are`;
