import { isDeepStrictEqual } from 'node:util';
import { isObject, type JsonObject } from '../json.ts';
import { protocolOf } from '../protocols/all.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { heardOf, type Heard } from '../testing/heard.ts';
import { trialOverHttp } from '../testing/trial-over-http.ts';
import type { Client } from './client.ts';
import { runClient, type Ran } from './run.ts';
import { recordedOf, type Recorded } from './session.ts';
import { Tap, type Exchange } from './tap.ts';

type Sampling = { temperature: number; max_tokens: number };
export type Compared = { what: string; through: Heard; direct: Heard };
type Where = { folder: string; gateway: { url: string; adminKey: string }; vllm: string; limitMs: number; signal: AbortSignal };

/** A small model's replies to such prompts are nonsense: a few tokens of it are enough, and take the same time. */
const GREEDY: Sampling = { temperature: 0, max_tokens: 8 };

/** Agents' prompts are long; and what a token's probabilities are depends on which requests are computed together, so that none are. */
export const ONE_AT_A_TIME = ['--max-model-len', '65536', '--max-num-seqs', '1'];

/** Runs a client through a gateway without token-in before a real vLLM, then asks that itself for the same. */
export async function clientBesideVllm(client: Client, { folder, gateway, vllm, limitMs, signal }: Where): Promise<{ ran: Ran; recorded: Recorded; compared: Compared[] }> {
  const tap = await new Tap(gateway.url).start();
  try {
    const trial = await trialOverHttp(gateway, client.name, { sampling: GREEDY });
    const ran = await runClient(client, { folder, trialUrl: `${tap.url}/${client.name}`, key: trial.key, limitMs });
    return { ran, recorded: recordedOf(await trial.session(), await trial.samples()), compared: await besideVllm(tap.heard, vllm, GREEDY, signal) };
  } finally {
    await tap.stop();
  }
}

/** Asks vLLM itself, in the same order, what a client asked through the gateway under `sampling`: both answers to each. */
async function besideVllm(exchanges: readonly Exchange[], vllm: string, sampling: Sampling, signal: AbortSignal): Promise<Compared[]> {
  /** vLLM's own ids of responses, by those that the client knows. */
  const ids = new Map<unknown, unknown>();
  const compared: Compared[] = [];
  for (const { path, body, status, reply } of exchanges) {
    const protocol = protocolOf(path);
    if (!protocol || path.includes('count_tokens') || status !== 200) continue;
    const asked = { ...forced(body, protocol, sampling), ...(body.previous_response_id ? { previous_response_id: ids.get(body.previous_response_id) } : {}) };
    const answer = await fetch(`${vllm}${protocol.path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(asked), signal });
    const text = await answer.text();
    if (protocol.name === 'responses') ids.set(responseId(reply), responseId(text));
    compared.push({ what: `${protocol.name}${body.stream === true ? ', stream' : ''}`, through: heardOf(status, reply, FORCED), direct: heardOf(answer.status, text, FORCED) });
  }
  return compared;
}

/** A response repeats its request: through the gateway what the client asked, from vLLM what the trial forces. */
const FORCED = ['temperature', 'max_output_tokens'];

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
