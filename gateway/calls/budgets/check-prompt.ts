import type { TrialNow } from '../../../store/queries/find-trials.ts';
import { contextExceeded } from '../../engines/engine-failed.ts';

/** Throws when the prompt is longer than the trial allows. Only the engine knows its length, so the reply is dropped. */
export function checkPrompt({ budgets }: Pick<TrialNow, 'budgets'>, prompt: readonly number[] | null): void {
  const limit = budgets.prompt_tokens;
  if (limit === undefined || prompt === null || prompt.length <= limit) return;
  throw contextExceeded(`the prompt has ${prompt.length} tokens, and this trial allows ${limit}`);
}
