import { isObject, type JsonObject } from '../json.ts';
import type { Wants } from './request.ts';

/** Returns the reply or chunk without what only the record needs. All other fields stay, known or not. */
export function hide(reply: JsonObject, wants: Wants): JsonObject {
  const shown = { ...reply };
  if (!wants.tokenIds) delete shown.prompt_token_ids;
  if (!wants.usage) delete shown.usage;
  if (Array.isArray(shown.choices)) shown.choices = shown.choices.map((choice: unknown) => hideInChoice(choice, wants));
  return shown;
}

function hideInChoice(choice: unknown, wants: Wants): unknown {
  if (!isObject(choice)) return choice;
  const { weight_versions: _, sampling_mask: __, ...shown } = choice;
  if (!wants.tokenIds) {
    delete shown.token_ids;
    delete shown.prompt_token_ids;
  }
  if (!wants.logprobs) delete shown.logprobs;
  return shown;
}
