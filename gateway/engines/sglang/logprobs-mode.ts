import { isObject, parseObject } from '../../json.ts';
import { readText, type EngineConnection } from '../connection.ts';
import type { LogprobsMode } from '../engine.ts';

/** Nats between two log-probabilities below which their distance says nothing. */
const CLEAR = 0.01;

/**
 * Reads the mode, which no route reports, by the distance between the two likeliest ids at two temperatures: twice the temperature halves
 * it, unless log-probabilities are of the distribution before it (`SGLANG_RETURN_ORIGINAL_LOGPROB`). Returns null when that cannot be seen.
 */
export async function readLogprobsMode(
  connection: EngineConnection,
  signal: AbortSignal,
): Promise<LogprobsMode | null> {
  const [one, two] = await Promise.all([1, 2].map((temperature) => readDistance(connection, temperature, signal)));
  if (!one || !two || one < CLEAR) return null;
  return two / one < 0.75 ? 'processed_logprobs' : 'raw_logprobs';
}

async function readDistance(
  connection: EngineConnection,
  temperature: number,
  signal: AbortSignal,
): Promise<number | null> {
  const body = {
    text: 'x',
    sampling_params: { max_new_tokens: 1, temperature },
    return_logprob: true,
    top_logprobs_num: 2,
  };
  const reply = await connection.ask({ method: 'POST', path: '/generate', body: JSON.stringify(body), signal });
  const meta = parseObject(await readText(reply.body))?.meta_info;
  const first: unknown = isObject(meta) && Array.isArray(meta.output_top_logprobs) ? meta.output_top_logprobs[0] : null;
  const [more, less] = (Array.isArray(first) ? first : []).map((each: unknown) =>
    Array.isArray(each) ? Number(each[0]) : NaN,
  );
  return more === undefined || less === undefined ? null : more - less;
}
