import { raceAbort } from '../../core/race-abort.ts';
import type { BindsTools, EngineTraits } from '../engines/engine.ts';
import type { Lease } from '../engines/lease.ts';
import { Failure } from '../failure.ts';
import type { JsonObject } from '../json.ts';
import type { Call } from './call.ts';
import type { CallDeps } from './deps.ts';
import { constraintsOf } from './sampling/constraints.ts';
import { filledIn } from './sampling/sampling.ts';

/** A replica that has the call, and how the call's request takes effect there. */
export type Placed = {
  lease: Lease;
  /** Null when the engine cannot continue conversations by ids, or was not asked. */
  traits: EngineTraits | null;
  /** The settings of the request as the engine receives them. */
  inForce: JsonObject;
};

/** Gets a replica for the call that is not in `except`. Waits for one until `deadline`. */
export async function place(
  deps: CallDeps,
  call: Call,
  { deadline, except }: { deadline: number; except: ReadonlySet<string> },
): Promise<Lease> {
  const { id, runId } = call.trial;
  return deps.engines.lease({ id, runId }, deadline, call.signal, { except, tokens: expectedTokens(call) });
}

/** A call adds about this many tokens to the turn that it continues. */
const NEW_TOKENS = 1_024;
const BYTES_A_TOKEN = 4;
export const EXPECTED_OUTPUT = 1_024;

/** Returns about how many tokens the call will have in the KV cache. Agents ask for far longer replies than they get. */
function expectedTokens({ request: { state, size, n }, sampled }: Call): number {
  const prompt = state.parent ? state.parent.tokenIds.length + NEW_TOKENS : Math.ceil(size / BYTES_A_TOKEN);
  const { max_tokens: limit } = sampled;
  return prompt + n * Math.min(typeof limit === 'number' ? limit : EXPECTED_OUTPUT, EXPECTED_OUTPUT);
}

/** Throws when the agent asks for another model than its policy, and the gateway does not accept any name. */
export function checkModel({ settings }: CallDeps, call: Call, { model }: Lease): void {
  if (settings.strictModel && model !== call.request.model) throw unknownModel(call.request.model, model);
}

/** Returns how a call takes effect on a replica with these traits. */
export function placedOn({ sampled, trial }: Call, lease: Lease, traits: EngineTraits | null): Placed {
  const isConstrained = constraintsOf(sampled, boundTools(traits)).length > 0;
  return { lease, traits, inForce: lease.replica.engine.inForce(sampled, traits, isConstrained, filledIn(trial)) };
}

/** Returns the tool calls that the engine holds to their schema. While that is unknown, only those of strict tools count as held. */
export const boundTools = (traits: EngineTraits | null): BindsTools => traits?.bindsTools ?? 'strict';

/** Asks what the engine can do. The gateway waits for slow engines. If an engine's routes for ids fail, its ordinary route may still answer. */
export async function traitsOf({ settings }: CallDeps, call: Call, lease: Lease): Promise<EngineTraits | null> {
  if (!settings.tokenIn) return null;
  // A wait costs each call promises and a listener, and most calls need none.
  const { knownTraits } = lease.replica;
  if (knownTraits) return knownTraits.known;
  return raceAbort(
    lease.replica.traits(lease.model).catch(() => null),
    call.signal,
  );
}

export function unknownModel(asked: string | null, served: string | null): Failure {
  const message = `the model ${JSON.stringify(asked)} does not exist here: this trial's policy is ${JSON.stringify(served)}`;
  return new Failure(404, 'model_not_found', message, { retryable: false });
}
