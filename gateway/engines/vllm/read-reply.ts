import { choicesOf } from '../../../store/calls/choices.ts';
import type { JsonObject } from '../../json.ts';
import type { ChoiceResult } from '../call-result.ts';
import { expertsIn } from '../read-sampled.ts';
import { completionCount, hide, recordedReply, type Wants } from '../completion.ts';
import type { ObjectChunk, WholeReply } from '../engine.ts';
import { promptOf, sampledOf, versionsOf } from './tokens.ts';

/** Fields of a choice that no agent asks for. */
const OWN = ['weight_versions', 'sampling_mask', 'routed_experts'];

/** `expertsFrom` is the prompt's token from which on experts were asked for. */
export function readWhole(body: JsonObject, wants: Wants, expertsFrom = 0): WholeReply {
  const shown = hide(body, wants, OWN);
  return {
    shown,
    result: {
      prompt: promptOf(body),
      choices: choicesOf(body).map((choice) => ({
        ...sampledIn(choice, expertsFrom),
        finishReason: typeof choice.finish_reason === 'string' ? choice.finish_reason : null,
      })),
      counted: completionCount(body.usage),
      reply: recordedReply(shown, wants),
    },
  };
}

export function readChunk(chunk: JsonObject, wants: Wants, expertsFrom = 0): ObjectChunk {
  return {
    shown: hide(chunk, wants, OWN),
    prompt: promptOf(chunk),
    usage: chunk.usage,
    sampled: choicesOf(chunk).map((choice) => sampledIn(choice, expertsFrom)),
  };
}

const sampledIn = (choice: JsonObject, expertsFrom: number): Omit<ChoiceResult, 'finishReason'> => ({
  ...sampledOf(choice),
  versions: versionsOf(choice),
  experts: expertsIn(choice.routed_experts, 'npy', expertsFrom),
});
