import { ApplicationFailure } from '@temporalio/common';
import { Agent } from 'undici';
import { z } from 'zod';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Sample } from './sample.ts';

type Teacher = Pick<NonNullable<RunConfig['teacher']>, 'url' | 'model'>;
type TeacherSample = Pick<Sample, 'tokenIds' | 'lossMask' | 'samplingMask'>;
/** For each token, the teacher's log-probability in nats; null where the token is not trained, or was sampled under a mask. */
export type TeacherLogprobs = (number | null)[];

const AT_ONCE = 16;
const MAX_MS = 600_000;
/** True for statuses after which the same request may succeed: a timeout, too many requests, and a server's own fault. */
const isPassing = (status: number): boolean => status === 408 || status === 429 || status >= 500;

/** vLLM's `prompt_logprobs`: for each token of the prompt except the first one, its entry by id. */
const answer = z.object({
  choices: z.tuple([
    z.object({ prompt_logprobs: z.array(z.record(z.string(), z.object({ logprob: z.number() })).nullable()) }),
  ]),
});

/**
 * Asks a teacher for the log-probability of each token that the policy sampled. The teacher gets the ids themselves, so it must have the
 * policy's tokenizer. An error may be retried, unless the teacher refuses the request.
 */
export async function askTeacher(
  teacher: Teacher,
  samples: readonly TeacherSample[],
  signal: AbortSignal,
): Promise<TeacherLogprobs[]> {
  const agent = new Agent({ connections: AT_ONCE, headersTimeout: 0, bodyTimeout: 0 });
  const found: TeacherLogprobs[] = [];
  let next = 0;
  const failed = new AbortController();
  const asking = async (): Promise<void> => {
    for (let i = next++; i < samples.length; i = next++) {
      const sample = samples[i];
      if (sample)
        found[i] = await ask(
          agent,
          teacher,
          sample,
          AbortSignal.any([signal, failed.signal, AbortSignal.timeout(MAX_MS)]),
        );
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, asking));
    return found;
  } catch (error) {
    failed.abort();
    throw error;
  } finally {
    await agent.destroy();
  }
}

async function ask(
  agent: Agent,
  { url, model }: Teacher,
  { tokenIds, lossMask, samplingMask }: TeacherSample,
  signal: AbortSignal,
): Promise<TeacherLogprobs> {
  const prompt = Array.from(tokenIds.subarray(0, lossMask.lastIndexOf(1) + 1));
  const target = new URL(`${url.replace(/\/+$/, '')}/completions`);
  const { status, text } = await agent
    .request({
      origin: target.origin,
      path: target.pathname,
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model, prompt, max_tokens: 1, temperature: 1, prompt_logprobs: 0 }),
      signal,
    })
    .then(async ({ statusCode, body }) => ({ status: statusCode, text: await body.text() }))
    .catch((cause: unknown) => {
      signal.throwIfAborted();
      throw new Error(`the teacher at ${url} cannot be reached: start it; the batch is made when it answers`, {
        cause,
      });
    });
  if (status !== 200) {
    const message = `the teacher at ${url} answered ${status}: ${text.slice(0, 300)}`;
    if (isPassing(status)) throw new Error(message);
    throw refused(
      `${message}; look at \`teacher\` in the run file and at the teacher's longest sequence, then resume the run`,
    );
  }
  const logprobs = parse(text)?.choices[0].prompt_logprobs;
  return Array.from(tokenIds, (token, i) => {
    if (lossMask[i] !== 1 || samplingMask[i] !== null) return null;
    const logprob = logprobs?.[i]?.[token]?.logprob;
    if (logprob === undefined)
      throw refused(
        `the teacher at ${url} does not answer \`prompt_logprobs\` as vLLM does: use a vLLM that serves a model with the policy's tokenizer, then resume the run`,
      );
    return logprob;
  });
}

function parse(text: string): z.output<typeof answer> | undefined {
  try {
    return answer.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

const refused = (message: string): ApplicationFailure =>
  ApplicationFailure.create({ type: 'teacher_refused', message, nonRetryable: true });
