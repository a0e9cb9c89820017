import type { JsonObject } from '../json.ts';
import type { WeightVersionSpan, SampledTokens } from './tokens.ts';

/** One of a call's replies. */
export type ChoiceResult = SampledTokens & {
  /** Null when the engine does not say which weights sampled which tokens. */
  versions: WeightVersionSpan[] | null;
  finishReason: string | null;
};

/** The facts known of a call when it ends. */
export type CallResult = {
  prompt: number[] | null;
  choices: ChoiceResult[];
  /** The number of sampled tokens as the engine counted them. */
  counted: number | null;
  /** The reply as the agent gets it. */
  reply: JsonObject | null;
};

export const EMPTY_RESULT: CallResult = { prompt: null, choices: [], counted: null, reply: null };

/** Returns the number of ids that were sampled in all choices. */
export const sampledTokens = ({ choices }: CallResult): number =>
  choices.reduce((sum, { completion }) => sum + (completion?.length ?? 0), 0);
