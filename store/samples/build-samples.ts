import type { SamplingMask } from '../calls/sampling-mask.ts';
import type { RoutedExperts } from '../schema.ts';
import { concat, startsWith } from '../../core/token-ids.ts';

/** A call as the samples of its trial need it. */
export type TrainableCall = {
  id: string;
  /** Its number among the attempt's completed calls, in the order of their commits. */
  turn: number;
  promptTokenIds: Int32Array;
  completionTokenIds: Int32Array;
  /** In nats, at `temperature`; one for each completion token. */
  logprobs: Float32Array;
  /** The ids that could be sampled at each completion token, over which `logprobs` are normalized; null: all ids. */
  samplingMask?: SamplingMask | null;
  /** One for each completion token, or one for all of them; null outside any run. */
  policyVersions: number | null | readonly number[];
  temperature: number;
  /** The blob with the experts of a mixture that the engine chose for its tokens; absent when the engine did not return them. */
  routedExperts?: RoutedExperts | null;
};

/** One trainable token sequence. All arrays by token have its length. */
export type TokenSample = {
  tokenIds: Int32Array;
  /** 1 where the policy sampled the token and this sample trains it. */
  lossMask: Int8Array;
  /** In nats, at `temperature`; 0 where the mask is 0. */
  logprobs: Float32Array;
  /** The ids over which the log-probability is normalized; null: all ids, or the token is not trained. */
  samplingMask: (readonly number[] | null)[];
  /** Null where the mask is 0. */
  policyVersions: (number | null)[];
  /** The turn of the call that sampled the token; null where the mask is 0. */
  turns: (number | null)[];
  temperature: number;
  callIds: string[];
};

type Node = { call: TrainableCall; tokenIds: Int32Array; parent: Node | null; isLeaf: boolean; isTrained: boolean };

/**
 * Builds the samples of a trial from its calls, which are given in the order of their commits. The calls form a tree of prefixes: a call
 * continues the earlier one with the longest sequence of ids (prompt and completion) that its prompt begins with. Each path to a leaf is a
 * sample; a turn that several paths share is trained in the first of them. Only ids decide: text is never tokenized again.
 */
export function buildSamples(calls: readonly TrainableCall[]): TokenSample[] {
  const nodes: Node[] = [];
  for (const call of calls) {
    const parent = longest(
      nodes.filter(
        (node) => node.call.temperature === call.temperature && startsWith(call.promptTokenIds, node.tokenIds),
      ),
    );
    if (parent) parent.isLeaf = false;
    nodes.push({
      call,
      tokenIds: concat(call.promptTokenIds, call.completionTokenIds),
      parent,
      isLeaf: true,
      isTrained: false,
    });
  }
  return nodes.filter((node) => node.isLeaf).map(sampleTo);
}

function sampleTo(leaf: Node): TokenSample {
  const { tokenIds, call } = leaf;
  const lossMask = new Int8Array(tokenIds.length);
  const logprobs = new Float32Array(tokenIds.length);
  const samplingMask = new Array<readonly number[] | null>(tokenIds.length).fill(null);
  const policyVersions = new Array<number | null>(tokenIds.length).fill(null);
  const turns = new Array<number | null>(tokenIds.length).fill(null);
  const callIds: string[] = [];
  for (let node: Node | null = leaf; node; node = node.parent) {
    callIds.unshift(node.call.id);
    if (node.isTrained) continue;
    node.isTrained = true;
    const {
      promptTokenIds,
      completionTokenIds,
      logprobs: own,
      samplingMask: kept,
      policyVersions: versions,
    } = node.call;
    const start = promptTokenIds.length;
    lossMask.fill(1, start, start + completionTokenIds.length);
    logprobs.set(own, start);
    turns.fill(node.call.turn, start, start + completionTokenIds.length);
    kept?.forEach((ids, i) => (samplingMask[start + i] = ids));
    completionTokenIds.forEach(
      (_, i) =>
        (policyVersions[start + i] =
          versions === null || typeof versions === 'number' ? versions : (versions[i] ?? null)),
    );
  }
  return { tokenIds, lossMask, logprobs, samplingMask, policyVersions, turns, temperature: call.temperature, callIds };
}

const longest = (nodes: Node[]): Node | null =>
  nodes.reduce<Node | null>((best, node) => (best && best.tokenIds.length >= node.tokenIds.length ? best : node), null);
