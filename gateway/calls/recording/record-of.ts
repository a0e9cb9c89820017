import { CALLS_NOT_SHOWN } from '../../../store/calls/calls-not-shown.ts';
import { nothingOfRequest } from '../../../store/calls/outline.ts';
import { sideBySide, startsWith } from '../../../core/token-ids.ts';
import type { CallRecord, ChoiceRecord } from '../../../store/queries/record-calls.ts';
import type { Continuation, Fault } from '../../../store/schema.ts';
import type { ConversationState } from '../../conversations/conversations.ts';
import { sampledTokens, type ChoiceResult, type CallResult } from '../../engines/call-result.ts';
import type { LogprobsMode } from '../../engines/engine.ts';
import { isAdapter } from '../../engines/lease.ts';
import type { Call } from '../call.ts';
import { constraintsOf } from '../sampling/constraints.ts';
import type { Progress } from '../generate.ts';
import { boundTools } from '../place.ts';
import { heldBytes } from './held-bytes.ts';
import { forcedOf, isRelaxed, recordedSampling } from '../sampling/sampling.ts';
import { countNotShown } from '../sampling/tools-not-shown.ts';
import { defectOf, isMasked, type Untrainable } from './trainable.ts';
import { versionOf, versionSpans } from './versions.ts';

/** The end of a call. */
export type Ending = {
  status: CallRecord['status'];
  httpStatus: number;
  reason: string | null;
  /** The party that caused the failure; null when the call completed. */
  fault: Fault | null;
  /** True when this record uses up the rest of the trial's budget of bytes. */
  fillsBytes: boolean;
  /** True when new weights came while the call was under way, and the engine may not say which tokens are whose. */
  published: boolean;
  /** The distribution of the log-probabilities, or null if it is not known. */
  mode: LogprobsMode | null;
};

/** Builds the database record of a finished call. For a request that the engine or the gateway refused, the record keeps the digest and the size. */
export function recordOf(
  call: Call,
  { placed, result, parent, showsMedia, firstTokenAt }: Progress,
  { published, mode, ...end }: Ending,
): CallRecord {
  const { id, trial, request, sampled, reservation, startedAt } = call;
  const { prompt, choices, reply } = result;
  const lease = placed?.lease ?? null;
  const inForce = placed?.inForce ?? sampled;
  const traits = placed?.traits ?? null;
  const bindsTools = boundTools(traits);
  const notShown = countNotShown(inForce, traits);
  const weightVersion = lease?.weightVersion ?? null;
  const state = parent ? { ...request.state, parent: { ...parent, messages: 0 } } : request.state;
  const constraints = constraintsOf(request.body, bindsTools);
  const isConstrained = constraintsOf(inForce, bindsTools).length > 0;
  const from = lease?.replica.engine.sampledFrom(inForce, mode, isConstrained) ?? 'unknown';
  // An engine that binds all tools still forces the tools' schemas on a relaxed request.
  const isHinted = isRelaxed(request.body, trial) && !isConstrained;
  const version = trial.runId === null ? null : versionOf(weightVersion);
  const only = choices.length === 1 ? choices[0]?.completion : null;
  // The conversation keeps the ids of a prompt and its reply as one list.
  const shared = prompt && only ? sideBySide(prompt, only) : null;
  const choiceOf = (choice: ChoiceResult, index: number): Omit<ChoiceRecord, 'id'> => {
    const { completion, logprobs, mask, finishReason } = choice;
    const isMaskNeeded = from === 'mask' && isMasked(choice);
    const spans = lease && isAdapter(lease) ? null : knownSpans(choice, trial.runId);
    return {
      completionTokenIds: shared?.[1] ?? (completion && new Int32Array(completion)),
      logprobs: logprobs && new Float32Array(logprobs),
      samplingMask: isMaskNeeded ? mask : null,
      experts: choice.experts ?? null,
      finishReason,
      policyVersion: spans ? Math.min(...spans.map((span) => span.version)) : version,
      versionSpans: spans && spans.length > 1 ? spans : null,
      untrainable:
        completion || end.status === 'completed'
          ? call.isCut(index)
            ? CALLS_NOT_SHOWN
            : (defect(choice, result, from === 'all' || isMaskNeeded) ??
              (published && !spans ? 'policy_changed' : showsMedia ? 'media_shown' : null))
          : null,
    };
  };
  const isRefused = end.status === 'failed' && end.httpStatus < 500;
  const [first = NOTHING_SAMPLED, ...more] = choices.map(choiceOf);
  return {
    ...end,
    id,
    startedAt,
    firstTokenAt,
    reserved: reservation !== null,
    trialId: trial.id,
    attempt: trial.attempt,
    endedAt: new Date(),
    protocol: request.protocol.name,
    stream: request.stream,
    digest: request.retry.digest,
    idempotencyKey: request.retry.key,
    traceparent: request.traceparent,
    isRetryable: request.retry.isPossible,
    requestBytes: request.size,
    request: isRefused ? nothingOfRequest() : request.outline,
    // The reply to a refused call is not stored: the reason contains its message, or it is the empty reply after a used-up budget.
    response: isRefused && end.httpStatus >= 400 ? null : reply,
    promptTokenIds: isRefused || !prompt ? null : (shared?.[0] ?? new Int32Array(prompt)),
    base: isRefused ? null : state.base,
    known: state.known,
    size: heldBytes(request.size, result),
    sampling: {
      ...recordedSampling(inForce),
      ...(mode ? { logprobs_mode: mode } : {}),
      ...(constraints.length > 0
        ? { constraints, constrained_decoding: isHinted ? 'hint' : 'enforce', client: request.client }
        : {}),
      ...forcedOf(trial.sampling, inForce),
      ...(notShown > 0 ? { tools_not_shown: notShown } : {}),
    },
    engine: lease?.replica.connection.url ?? null,
    weightVersion: (lease && isAdapter(lease) ? null : reportedWeightVersion(choices)) ?? weightVersion,
    parentId: state.parent?.callId ?? null,
    continuation: continuationOf(state, prompt),
    choices: [{ id, ...first }, ...more.map((choice) => ({ id: crypto.randomUUID(), ...choice }))],
  };
}

const NOTHING_SAMPLED = {
  completionTokenIds: null,
  logprobs: null,
  finishReason: null,
  policyVersion: null,
  versionSpans: null,
  untrainable: null,
};

/** Returns the weight version of the first tokens from the engine's reply. The weight version that was read before the call may be older. */
const reportedWeightVersion = (choices: readonly ChoiceResult[]): string | null =>
  choices.find(({ versions }) => versions)?.versions?.[0]?.weightVersion.toWellFormed() ?? null;

function knownSpans({ versions, completion }: ChoiceResult, runId: string | null) {
  const spans = versions && versionSpans(versions, runId, completion?.length ?? 0);
  return spans === 'foreign' ? null : spans;
}

function defect(choice: ChoiceResult, result: CallResult, reproducible: boolean): Untrainable | null {
  const miscounted = result.counted !== null && result.counted !== sampledTokens(result) ? 'length_mismatch' : null;
  return defectOf(result.prompt, choice) ?? miscounted ?? (reproducible ? null : 'sampling_not_reproducible');
}

function continuationOf(
  { parent, isEdited, isFirst }: ConversationState,
  prompt: readonly number[] | null,
): Continuation | null {
  if (isFirst || prompt === null) return null;
  if (!parent || isEdited) return 'branched';
  return startsWith(prompt, parent.tokenIds) ? 'clean' : 'drifted';
}
