import { isDeepStrictEqual } from 'node:util';
import { isObject, type JsonObject } from '../json.ts';
import { protocolOf } from '../protocols/all.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { hear, heardOf, type Heard } from '../testing/heard.ts';
import type { Exchange } from './tap.ts';

export type Sampling = { temperature: number; max_tokens: number };
export type Compared = { what: string; through: Heard; direct: Heard };

/** Asks vLLM itself, in the same order, what a client asked through the gateway under `sampling`: both answers to each. */
export async function besideVllm(exchanges: readonly Exchange[], vllm: string, sampling: Sampling, signal: AbortSignal): Promise<Compared[]> {
  /** vLLM's own ids of responses, by those that the client knows. */
  const ids = new Map<unknown, unknown>();
  const compared: Compared[] = [];
  for (const { path, body, status, reply } of exchanges) {
    const protocol = protocolOf(path);
    if (!protocol || path.includes('count_tokens') || status !== 200) continue;
    const asked = { ...forced(body, protocol, sampling), ...(body.previous_response_id ? { previous_response_id: ids.get(body.previous_response_id) } : {}) };
    const answer = await fetch(`${vllm}${protocol.path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(asked), signal });
    const text = await answer.clone().text();
    if (protocol.name === 'responses') ids.set(responseId(reply), responseId(text));
    compared.push({ what: `${protocol.name}${body.stream === true ? ', stream' : ''}`, through: heardOf(status, reply), direct: await hear(answer) });
  }
  return compared;
}

export const differs = ({ through, direct }: Compared): boolean => !isDeepStrictEqual(through, direct);

/** What the gateway makes of a request for a trial of this sampling, in the request's own protocol. */
function forced(body: JsonObject, { name }: Protocol, { temperature, max_tokens }: Sampling): JsonObject {
  const limit = name === 'responses' ? 'max_output_tokens' : 'max_completion_tokens' in body ? 'max_completion_tokens' : 'max_tokens';
  const own = body[limit];
  return { ...body, model: 'policy', temperature, [limit]: Math.min(typeof own === 'number' ? own : max_tokens, max_tokens) };
}

const responseId = (text: string): unknown => /"id": ?"(resp_[^"]+)"/.exec(text)?.[1];

/** Where two answers first differ, for a person. */
export function firstDifference({ through, direct }: Compared): string {
  if (through.status !== direct.status) return `${through.status} through the gateway, ${direct.status} from vLLM: ${JSON.stringify(direct.events).slice(0, 300)}`;
  const at = through.events.findIndex((event, i) => !isDeepStrictEqual(event, direct.events[i]));
  const [here, there] = [through.events, direct.events].map((events) => events[at < 0 ? Math.min(through.events.length, direct.events.length) : at]);
  return fieldThatDiffers(here, there, `event ${at < 0 ? 'count' : at}`);
}

function fieldThatDiffers(here: unknown, there: unknown, where: string): string {
  if (isObject(here) && isObject(there)) {
    const key = Object.keys({ ...here, ...there }).find((each) => !isDeepStrictEqual(here[each], there[each]));
    if (key !== undefined) return fieldThatDiffers(here[key], there[key], `${where}.${key}`);
  }
  if (Array.isArray(here) && Array.isArray(there) && here.length === there.length) {
    const i = here.findIndex((each, place) => !isDeepStrictEqual(each, there[place]));
    if (i >= 0) return fieldThatDiffers(here[i], there[i], `${where}[${i}]`);
  }
  return `${where}: ${JSON.stringify(here)?.slice(0, 200)} through the gateway, ${JSON.stringify(there)?.slice(0, 200)} from vLLM`;
}
