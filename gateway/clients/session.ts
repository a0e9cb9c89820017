import { z } from 'zod';

const turn = z.object({ call_id: z.string(), protocol: z.string(), continuation: z.string().nullable(), untrainable: z.string().nullable(), completion_token_ids: z.array(z.number()) });
const session = z.object({ turns: z.array(turn), unfinished: z.array(turn) });
const sampled = z.object({ samples: z.array(z.object({ call_ids: z.array(z.string()), loss_mask: z.array(z.number()) })) });

/** What a trial's record says of its calls, in figures. */
export type Recorded = { calls: number; unfinished: number; protocols: string[]; clean: number; realigned: number; forked: number; untrainable: number; samples: number; trained: number; tokens: number };

export function recordedOf(sessionBody: unknown, samplesBody: unknown): Recorded {
  const { turns, unfinished } = session.parse(sessionBody);
  const { samples } = sampled.parse(samplesBody);
  const how = (continuation: string) => turns.filter((each) => each.continuation === continuation).length;
  return {
    calls: turns.length,
    unfinished: unfinished.length,
    protocols: [...new Set(turns.map(({ protocol }) => protocol))],
    clean: how('clean'),
    realigned: how('realigned'),
    forked: how('forked'),
    untrainable: turns.filter(({ untrainable }) => untrainable !== null).length,
    samples: samples.length,
    trained: samples.reduce((sum, { loss_mask }) => sum + loss_mask.filter(Boolean).length, 0),
    tokens: turns.reduce((sum, { completion_token_ids }) => sum + completion_token_ids.length, 0),
  };
}
