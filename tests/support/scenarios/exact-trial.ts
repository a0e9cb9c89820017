import { UndiciConnection } from '../../../gateway/runtimes/node/engine-connection.ts';
import type { EngineConnection } from '../../../gateway/engines/connection.ts';
import { converse, type Line, type Message } from './converse.ts';
import { inOrder, type TurnMatcher } from './generated.ts';
import { readingOfSglang, readingOfSmallModel, readingOfToy, type Reading } from '../oracles/readings.ts';
import { recordFaults, type Observation } from '../oracles/record-faults.ts';
import type { SglangEngine } from '../fakes/sglang/sglang-engine.ts';
import type { TokenEngine } from '../fakes/token-engine.ts';
import type { ToyEngine } from '../fakes/toy-engine.ts';
import { trialOverHttp } from '../harness/trial-over-http.ts';

/** The gateway that an agent talks to, and the facts known of its engine. */
export type Place = {
  gateway: { url: string; adminKey: string };
  reading: Reading;
  matches: (trialId: string) => TurnMatcher;
  /** Fields that each of a trial's requests has in addition. `lines` has the toy engine's answers. */
  more: (trialId: string, lines: Line[]) => Message;
  forcing?: Message;
  /** Fields with which a trial is opened. */
  opening?: Message;
};

export const onToy = (gateway: Place['gateway'], toy: TokenEngine): Place => ({
  gateway,
  reading: readingOfToy(toy.parses),
  matches: (trialId) => takeLog(toy, trialId),
  more: (trialId, lines) => ({ cue: { lines, log: trialId } }),
});

/** SGLang passes `custom_params` on to what samples, and limits a text completion that names no limit to 16 tokens. */
export const onSglang = (gateway: Place['gateway'], engine: SglangEngine): Place => ({
  gateway,
  reading: readingOfSglang(engine.parses),
  matches: (trialId) => takeLog(engine, trialId),
  more: (trialId, lines) => ({ custom_params: { cue: { lines, log: trialId } }, max_tokens: 200 }),
});

function takeLog(engine: ToyEngine, trialId: string): TurnMatcher {
  const generated = engine.logs.get(trialId) ?? [];
  engine.logs.delete(trialId);
  return inOrder(generated);
}

/** A model this small calls no tool unless forced. The grammar makes such a call untrainable, but the next turn still continues its ids. */
const FORCING = { tool_choice: { type: 'function', function: { name: 'ls' } }, max_tokens: 48 };

/** `engine` is for the test's own questions. */
export const onSmallModel = (
  gateway: Place['gateway'],
  engine: EngineConnection,
  matches: TurnMatcher,
  signal: AbortSignal,
): Place => ({
  gateway,
  reading: readingOfSmallModel(engine, signal),
  matches: () => matches,
  more: () => ({ max_tokens: 8, temperature: 1 }),
  forcing: FORCING,
});

type Options = { seed: number; steps?: number; tools?: boolean };

/** Runs one random agent's trial, and returns what it saw, what was recorded, and what the engine was given and gave. */
export async function observeTrial(place: Place, trialId: string, { seed, ...options }: Options): Promise<Observation> {
  const trial = await trialOverHttp(place.gateway, trialId, place.opening);
  let lines: Line[] = [];
  const chat = (body: Message) => trial.chat({ ...place.more(trialId, lines), ...body });
  const complete = (body: Message) => trial.complete({ ...place.more(trialId, lines), ...body });
  const steps = await converse(seed, {
    chat,
    complete,
    say: (next) => (lines = next),
    ...(place.forcing ? { forcing: place.forcing } : {}),
    ...options,
  });
  return {
    steps,
    session: await trial.session(),
    samples: await trial.samples(),
    reading: place.reading,
    matches: place.matches(trialId),
  };
}

/** Does the same, and also returns where these differ. */
export async function exactTrial(
  place: Place,
  trialId: string,
  options: Options,
): Promise<Observation & { faults: string[] }> {
  const seen = await observeTrial(place, trialId, options);
  return { ...seen, faults: (await recordFaults(seen)).map((fault) => `seed ${options.seed}: ${fault}`) };
}

type Deployed = { gatewayUrl: string; adminKey: string; engines: readonly string[] };

/**
 * Has random agents talk to the gateway of a deployment whose engine has the small model, and no parser, all at once. Returns where their
 * records differ from what they saw.
 */
export async function exactTrialsIn(
  { gatewayUrl, adminKey, engines }: Deployed,
  { trials, steps, signal }: { trials: number; steps: number; signal: AbortSignal },
): Promise<string[]> {
  const engine = new UndiciConnection(engines[0] ?? '');
  const place = onSmallModel({ url: gatewayUrl, adminKey }, engine, () => true, signal);
  const plain = { ...place, reading: { ...place.reading, parses: false } };
  const conversations = Array.from(
    { length: trials },
    async (_, i) => (await exactTrial(plain, `real-${i}`, { seed: i + 1, tools: false, steps })).faults,
  );
  return (await Promise.all(conversations).finally(() => engine.close())).flat();
}
