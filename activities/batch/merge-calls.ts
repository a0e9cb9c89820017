import type { Sample, TrainableCall } from './sample.ts';

type Sequence = Omit<Sample, 'rewards' | 'groupId' | 'trialId' | 'attempt'>;

/**
 * A call whose prompt starts with exactly the ids of the sequence before it continues that sequence; any other
 * starts a sequence of its own. Ids alone decide: text is never tokenised again.
 */
export function mergeCalls(calls: TrainableCall[]): Sequence[] {
  const sequences: Sequence[] = [];
  for (const call of calls) {
    const last = sequences.at(-1);
    if (last && last.temperature === call.temperature && startsWith(call.promptTokenIds, last.tokenIds)) {
      sequences[sequences.length - 1] = extend(last, call);
    } else {
      sequences.push(extend({ ...EMPTY, temperature: call.temperature }, call));
    }
  }
  return sequences;
}

const EMPTY: Omit<Sequence, 'temperature'> = {
  tokenIds: new Int32Array(),
  lossMask: new Int8Array(),
  logprobs: new Float32Array(),
  policyVersions: [],
  callIds: [],
};

function extend(before: Sequence, call: TrainableCall): Sequence {
  const { promptTokenIds: prompt, completionTokenIds: completion } = call;
  const tokenIds = new Int32Array(prompt.length + completion.length);
  tokenIds.set(prompt);
  tokenIds.set(completion, prompt.length);
  const lossMask = new Int8Array(tokenIds.length);
  lossMask.set(before.lossMask);
  lossMask.fill(1, prompt.length);
  const logprobs = new Float32Array(tokenIds.length);
  logprobs.set(before.logprobs);
  logprobs.set(call.logprobs, prompt.length);
  const known = before.policyVersions.length;
  const policyVersions = Array.from({ length: tokenIds.length }, (_, i) =>
    i < known ? (before.policyVersions[i] ?? null) : i < prompt.length ? null : call.policyVersion,
  );
  return { tokenIds, lossMask, logprobs, policyVersions, temperature: before.temperature, callIds: [...before.callIds, call.id] };
}

const startsWith = (ids: Int32Array, prefix: Int32Array): boolean =>
  ids.length >= prefix.length && prefix.every((id, i) => ids[i] === id);
