import { isObject, parseObject } from '../../json.ts';
import { readText, type EngineConnection } from '../connection.ts';
import type { LogprobsMode } from '../engine.ts';

const CERTAIN = -1e-4;

/**
 * Reads the mode, which no route reports, by sampling one token with all others excluded: it is certain in the distribution that was
 * sampled from, and not in the one before. Returns null when the engine does not say.
 */
export async function readLogprobsMode(
  connection: EngineConnection,
  model: string | null,
  signal: AbortSignal,
): Promise<LogprobsMode | null> {
  const body = {
    ...(model === null ? {} : { model }),
    prompt: 'x',
    max_tokens: 1,
    temperature: 1,
    top_k: 1,
    logprobs: 0,
  };
  const reply = await connection.ask({ method: 'POST', path: '/v1/completions', body: JSON.stringify(body), signal });
  const choices = parseObject(await readText(reply.body))?.choices;
  const logprobs = Array.isArray(choices) && isObject(choices[0]) ? choices[0].logprobs : null;
  const [logprob] = isObject(logprobs) && Array.isArray(logprobs.token_logprobs) ? logprobs.token_logprobs : [];
  if (typeof logprob !== 'number') return null;
  return logprob > CERTAIN ? 'processed_logprobs' : 'raw_logprobs';
}
