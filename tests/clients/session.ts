import { z } from 'zod';
import type { TurnMatcher } from '../support/scenarios/generated.ts';
import { modeIn, type Client } from './client.ts';
import { receivedContent, isSame, contentOfIds } from './reply-content.ts';
import type { Exchange } from './tap.ts';

const ids = z.array(z.number());
const turn = z.object({
  call_id: z.string(),
  protocol: z.string(),
  continuation: z.string().nullable(),
  untrainable: z.string().nullable(),
  request_messages: z.array(z.unknown()),
  tools: z.array(z.unknown()).nullable(),
  prompt_token_ids: ids,
  completion_token_ids: ids,
  completion_logprobs: ids,
});
const session = z.object({ turns: z.array(turn), unfinished: z.array(turn) });
const sampled = z.object({
  samples: z.array(z.object({ call_ids: z.array(z.string()), loss_mask: z.array(z.number()) })),
});
type Turn = z.output<typeof turn>;

/** The figures of a trial's record. `trained` counts the tokens that its samples train, `trainable` the tokens of its trainable calls. */
export type RecordFigures = {
  calls: number;
  unfinished: number;
  protocols: string[];
  clean: number;
  drifted: number;
  branched: number;
  untrainable: number;
  samples: number;
  trained: number;
  trainable: number;
  tokens: number;
};
/** The figures of one mode's calls. `reasons` says why calls are not trained. */
export type ModeRecord = {
  mode: string;
  calls: number;
  clean: number;
  branched: number;
  untrainable: number;
  reasons: string[];
};

export function recordedOf(sessionBody: unknown, samplesBody: unknown): RecordFigures {
  const { turns, unfinished } = session.parse(sessionBody);
  const { samples } = sampled.parse(samplesBody);
  return {
    calls: turns.length,
    unfinished: unfinished.length,
    protocols: [...new Set(turns.map(({ protocol }) => protocol))],
    clean: goingOn(turns, 'clean'),
    drifted: goingOn(turns, 'drifted'),
    branched: goingOn(turns, 'branched'),
    untrainable: untrainableOf(turns).length,
    samples: samples.length,
    trained: samples.reduce((sum, { loss_mask }) => sum + loss_mask.filter(Boolean).length, 0),
    trainable: tokensOf(turns.filter(({ untrainable }) => untrainable === null)),
    tokens: tokensOf(turns),
  };
}

export function modesOf(client: Client, sessionBody: unknown): ModeRecord[] {
  const { turns } = session.parse(sessionBody);
  const byMode = Map.groupBy(
    turns,
    ({ request_messages }) => modeIn(client, JSON.stringify(request_messages))?.name ?? 'none',
  );
  return [...byMode].map(([mode, calls]) => ({
    mode,
    calls: calls.length,
    clean: goingOn(calls, 'clean'),
    branched: goingOn(calls, 'branched'),
    untrainable: untrainableOf(calls).length,
    reasons: [...new Set(untrainableOf(calls))],
  }));
}

/**
 * Lists where the record differs from what the client received or the engine sampled. Each reply that a client received whole must match
 * one recorded turn with ids of the same content, and each turn must be what the engine sampled.
 */
export function suiteFaults(
  sessionBody: unknown,
  { exchanges, matches }: { exchanges: readonly Exchange[]; matches: TurnMatcher },
): string[] {
  const { turns } = session.parse(sessionBody);
  const faults = turns.flatMap(
    ({ call_id, prompt_token_ids: prompt, completion_token_ids: completion, completion_logprobs: logprobs }, i) =>
      matches({ prompt, completion, logprobs }, i)
        ? []
        : [`the turn ${call_id} is not what the engine was given and gave`],
  );
  const left = [...turns];
  for (const { path, body, reply, cut } of exchanges) {
    if (cut) continue;
    const said = receivedContent(reply);
    const at = left.findIndex((each) =>
      isSame(
        said,
        contentOfIds(each.completion_token_ids, { hasTools: (each.tools?.length ?? 0) > 0, stop: body.stop }),
      ),
    );
    if (at < 0) faults.push(`${path} was answered ${JSON.stringify(said)}, which no turn's ids say`);
    else left.splice(at, 1);
  }
  return faults;
}

const tokensOf = (turns: readonly Turn[]): number =>
  turns.reduce((sum, { completion_token_ids }) => sum + completion_token_ids.length, 0);
const goingOn = (turns: readonly Turn[], how: string): number =>
  turns.filter(({ continuation }) => continuation === how).length;
const untrainableOf = (turns: readonly Turn[]): string[] => turns.flatMap(({ untrainable }) => untrainable ?? []);
