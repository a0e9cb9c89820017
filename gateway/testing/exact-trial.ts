import type { EngineConnection } from '../engines/connection.ts';
import { converse, type Line, type Message } from './converse.ts';
import { inOrder, type Took } from './generated.ts';
import { readingOfSmallModel, readingOfToy, type Reading } from './readings.ts';
import { recordFaults, type Seen } from './record-faults.ts';
import type { TokenEngine } from './token-engine.ts';
import { trialOverHttp } from './trial-over-http.ts';

/** Where an agent converses, and what is known there of its engine. */
export type Place = {
  gateway: { url: string; adminKey: string };
  reading: Reading;
  took: (trialId: string) => Took;
  /** What each of a trial's requests has besides. `lines`: what the toy engine is to answer. */
  more: (trialId: string, lines: Line[]) => Message;
  forcing?: Message;
  /** What a trial is opened with. */
  opening?: Message;
};

export const onToy = (gateway: Place['gateway'], toy: TokenEngine): Place => ({
  gateway,
  reading: readingOfToy(toy.parses),
  took: (trialId) => {
    const generated = toy.logs.get(trialId) ?? [];
    toy.logs.delete(trialId);
    return inOrder(generated);
  },
  more: (trialId, lines) => ({ cue: { lines, log: trialId } }),
});

/** Left to itself, so small a model calls no tool. Its grammar makes such a call untrainable; its ids are what the next turn goes on from. */
const FORCING = { tool_choice: { type: 'function', function: { name: 'ls' } }, max_tokens: 48 };

/** `engine`: for questions of the test's own. */
export const onSmallModel = (gateway: Place['gateway'], engine: EngineConnection, took: Took, signal: AbortSignal): Place => ({
  gateway,
  reading: readingOfSmallModel(engine, signal),
  took: () => took,
  more: () => ({ max_tokens: 8, temperature: 1 }),
  forcing: FORCING,
});

type Options = { seed: number; steps?: number; tools?: boolean };

/** One random agent's trial: what it saw, what was recorded, and what the engine was given and gave. */
export async function seenIn(place: Place, trialId: string, { seed, ...options }: Options): Promise<Seen> {
  const trial = await trialOverHttp(place.gateway, trialId, place.opening);
  let lines: Line[] = [];
  const chat = (body: Message) => trial.chat({ ...place.more(trialId, lines), ...body });
  const complete = (body: Message) => trial.complete({ ...place.more(trialId, lines), ...body });
  const steps = await converse(seed, { chat, complete, say: (next) => (lines = next), ...(place.forcing ? { forcing: place.forcing } : {}), ...options });
  return { steps, session: await trial.session(), samples: await trial.samples(), reading: place.reading, took: place.took(trialId) };
}

/** The same, and where they differ. */
export async function exactTrial(place: Place, trialId: string, options: Options): Promise<Seen & { faults: string[] }> {
  const seen = await seenIn(place, trialId, options);
  return { ...seen, faults: (await recordFaults(seen)).map((fault) => `seed ${options.seed}: ${fault}`) };
}
