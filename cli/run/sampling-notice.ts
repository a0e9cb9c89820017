import type { RunConfig } from '../../core/run-config/run-config.ts';
import { UndiciConnection } from '../../gateway/runtimes/node/engine-connection.ts';
import type { EngineTraits } from '../../gateway/engines/engine.ts';
import { Replica } from '../../gateway/engines/replica.ts';
import type { Sampling } from '../../core/sampling-choices.ts';

const ASK_MS = 10_000;

type Neutral = ReadonlyMap<string, readonly number[]>;
/** Settings that exclude ids, and settings that change the ratios between ids, each with the values that have no effect. */
const EXCLUDES: Neutral = new Map([
  ['top_p', [1]],
  ['top_k', [-1, 0]],
  ['min_p', [0]],
]);
const CHANGES: Neutral = new Map([
  ['presence_penalty', [0]],
  ['frequency_penalty', [0]],
  ['repetition_penalty', [1]],
]);

/** A sentence for a person before a run starts. `nothingTrains`: the run could not train on any call. */
export type Notice = { text: string; nothingTrains: boolean };

/** Returns a notice for a run whose sampling settings make its calls untrainable with these engines; null if they do not. */
export async function samplingNotice(
  { sampling }: Pick<RunConfig, 'sampling'>,
  engines: readonly string[],
): Promise<Notice | null> {
  const changing = settingsBeyond(sampling, CHANGES);
  if (changing.length > 0)
    return nothingTrains(
      `${changing.join(', ')} of the run file's sampling change the probabilities in a way that the trainer cannot reproduce: no call is trained on`,
    );
  const excluding = settingsBeyond(sampling, EXCLUDES);
  const stops = typeof sampling.stop === 'object';
  if (excluding.length === 0 && !stops) return null;
  const traits = await Promise.all(engines.map(traitsOf));
  const parsing = traits.filter((each) => stops && each?.parses && !each.stopsByIds);
  // A stop string may cut a tool call. Only the engine's ordinary routes parse such a call as the engine does.
  if (parsing.some((each) => each?.maskedTopK))
    return nothingTrains(
      `stop of the run file's sampling takes calls off the routes that return sampling masks, because the engine reads tool calls or reasoning out of the text: no call is trained on. Remove it`,
    );
  if (parsing.length > 0)
    return {
      nothingTrains: false,
      text: `stop of the run file's sampling: the engine reads tool calls or reasoning out of the text, so each call is a separate sample and does not continue the one before by its ids. Remove it, or start the engine without its parsers`,
    };
  if (excluding.length === 0) return null;
  const without = engines.filter((_, i) => !traits[i]?.maskedTopK);
  if (without.length === 0) return null;
  const text =
    `${excluding.join(', ')} of the run file's sampling truncate it, and ${without.join(', ')} ${without.length === 1 ? 'does' : 'do'} not return sampling masks: ` +
    'calls that they answer are not trained on. Remove the settings, or start vLLM with --return-sampling-mask (docs/gateway.md, "Sampling masks")';
  // An engine that cannot be asked now may return masks later.
  const certain = engines.filter((_, i) => traits[i] !== null && !traits[i]?.maskedTopK);
  return { text, nothingTrains: certain.length === engines.length };
}

const nothingTrains = (text: string): Notice => ({ text, nothingTrains: true });

function settingsBeyond(sampling: Sampling, neutral: Neutral): string[] {
  return Object.entries(sampling).flatMap(([name, choice]) => {
    const value = typeof choice === 'object' && 'default' in choice ? choice.default : choice;
    const fine = neutral.get(name);
    return fine && typeof value === 'number' && !fine.includes(value) ? [`${name} ${value}`] : [];
  });
}

/** Returns null when the engine cannot be asked. */
async function traitsOf(url: string): Promise<EngineTraits | null> {
  const connection = new UndiciConnection(url);
  try {
    return await new Replica(connection, undefined, ASK_MS).traits(null);
  } catch {
    return null;
  } finally {
    await connection.close();
  }
}
