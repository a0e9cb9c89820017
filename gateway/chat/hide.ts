import { isObject } from '../json.ts';
import type { Wants } from './request.ts';

/** The reply or chunk without what only the record is for. All other fields stay, known or not. */
export function hide(reply: Record<string, unknown>, wants: Wants): Record<string, unknown> {
  const shown = { ...reply };
  if (!wants.tokenIds) delete shown.prompt_token_ids;
  if (!wants.usage) delete shown.usage;
  if (Array.isArray(shown.choices)) shown.choices = shown.choices.map((choice: unknown) => hideInChoice(choice, wants));
  return shown;
}

function hideInChoice(choice: unknown, wants: Wants): unknown {
  if (!isObject(choice)) return choice;
  const shown = { ...choice };
  if (!wants.tokenIds) delete shown.token_ids;
  if (!wants.logprobs) delete shown.logprobs;
  delete shown.weight_versions;
  return shown;
}

/** Whether a chunk is the one after the last that tells the tokens' count. */
export const isOnlyUsage = (chunk: Record<string, unknown>): boolean =>
  Array.isArray(chunk.choices) && chunk.choices.length === 0 && isObject(chunk.usage);

export function onlyChoice(reply: Record<string, unknown>): Record<string, unknown> | undefined {
  const choice: unknown = Array.isArray(reply.choices) ? reply.choices[0] : undefined;
  return isObject(choice) ? choice : undefined;
}
