import type { Sampling } from '../../../store/schema.ts';
import { isObject, isSet, type JsonObject } from '../../json.ts';
import { canRelax, relaxed } from './constraints.ts';
import type { ModelRequest } from '../../protocols/model-request.ts';

/** Settings under which the engine samples from the plain softmax. */
export const NEUTRAL = {
  top_p: 1,
  top_k: -1,
  min_p: 0,
  presence_penalty: 0,
  frequency_penalty: 0,
  repetition_penalty: 1,
};

/**
 * Returns the request's fields with the trial's own sampling in force. Each setting is forced, a default where the agent sets none, or left
 * to the agent. In a run every setting that the trial does not name is neutral, and the temperature is 1 unless the agent sets one, because
 * the engine's defaults come from the model's folder and are not known here. An agent's `seed` would give all trials of a group the same
 * replies. The smallest limit on tokens applies, and the replies share the reserved tokens. A constraint on the form of a reply becomes a
 * hint if the trial asks for that.
 */
export function sampledBody(
  { body, maxTokens, n }: Pick<ModelRequest, 'body' | 'maxTokens' | 'n'>,
  trial: { runId: string | null; sampling: Sampling },
  reserved: number | null,
): Record<string, unknown> {
  const {
    max_tokens: _limit,
    constrained_decoding: _form,
    keep_thinking: _thinking,
    chat_template_kwargs: template,
    ...chosen
  } = trial.sampling;
  const { max_completion_tokens: _, ...sampled } = body;
  if (trial.runId !== null) Object.assign(sampled, { temperature: body.temperature ?? 1, seed: undefined }, NEUTRAL);
  for (const [key, choice] of Object.entries(chosen)) {
    const isDefault = typeof choice === 'object' && 'default' in choice;
    sampled[key] = choice === 'agent' ? body[key] : isDefault ? (body[key] ?? choice.default) : choice;
  }
  if (template) Object.assign(sampled, withTemplate(body, trial));
  const limit = reserved === null ? tokenLimit(trial, maxTokens, 1) : Math.floor(reserved / n);
  if (limit !== null) sampled.max_tokens = limit;
  return isRelaxed(body, trial) ? relaxed(sampled) : sampled;
}

/** Returns the names of the settings that are neutral in `sampledBody` because the trial of a run does not name them. */
export const filledIn = ({ runId, sampling }: { runId: string | null; sampling: Sampling }): string[] =>
  runId === null ? [] : Object.keys(NEUTRAL).filter((name) => !(name in sampling));

/** Returns the request's template variables, overridden by the trial's own. A text completion has no chat template. */
export function withTemplate(
  { messages, chat_template_kwargs: own }: JsonObject,
  { sampling }: { sampling: Sampling },
): JsonObject {
  const { chat_template_kwargs: forced } = sampling;
  return forced && messages !== undefined ? { chat_template_kwargs: { ...(isObject(own) ? own : {}), ...forced } } : {};
}

/** True when the prompt asks for the form of the reply instead of a constraint on the engine. */
export const isRelaxed = (body: JsonObject, { sampling }: { sampling: Sampling }): boolean =>
  sampling.constrained_decoding === 'hint' && canRelax(body);

/** Returns how many tokens `n` replies may have together by their request and the run's settings, or null without a limit. */
export function tokenLimit(
  { sampling: { max_tokens: limit } }: { sampling: Sampling },
  maxTokens: number | null,
  n: number,
): number | null {
  const own = typeof limit === 'object' ? (maxTokens ?? limit.default) : maxTokens;
  const limits = [limit, own].filter((each) => typeof each === 'number');
  return limits.length > 0 ? n * Math.min(...limits) : null;
}

const RECORDED = ['temperature', ...Object.keys(NEUTRAL), 'max_tokens', 'min_tokens', 'seed'];

/** Returns the numbers in force, for the record. Other settings are in the recorded request. */
export function recordedSampling(body: Record<string, unknown>): Record<string, number> {
  const numbers: Record<string, number> = {};
  for (const key of RECORDED) {
    const value = body[key];
    if (typeof value === 'number') numbers[key] = value;
  }
  return numbers;
}

/** Returns the trial's own settings in force that are not numbers, for the record, because the request does not have them. */
export const forcedOf = (
  { stop, chat_template_kwargs: template, keep_thinking }: Sampling,
  sampled: Record<string, unknown>,
): JsonObject => ({
  ...(stop !== undefined && isSet(sampled.stop) ? { stop: sampled.stop } : {}),
  ...(keep_thinking === undefined ? {} : { keep_thinking }),
  ...(template && sampled.chat_template_kwargs !== undefined
    ? { chat_template_kwargs: sampled.chat_template_kwargs }
    : {}),
});
