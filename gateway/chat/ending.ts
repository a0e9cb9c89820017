import type { JsonObject } from '../json.ts';
import type { LabelSpan, Sampled } from './tokens.ts';

/** One of a call's replies. */
export type ChoiceEnding = Sampled & {
  /** Null when the engine did not say which weights sampled which tokens. */
  versions: LabelSpan[] | null;
  finishReason: string | null;
};

/** What was learned of a call by the time it ended. */
export type Ending = {
  prompt: number[] | null;
  choices: ChoiceEnding[];
  /** The engine's own count of the tokens it sampled. */
  counted: number | null;
  /** The reply as the agent gets it. */
  reply: JsonObject | null;
};

export const NOTHING: Ending = { prompt: null, choices: [], counted: null, reply: null };

/** The ids that the next call may go on from. */
export const sampledTokens = ({ choices }: Ending): number => choices.reduce((sum, { completion }) => sum + (completion?.length ?? 0), 0);
