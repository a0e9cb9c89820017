import { isDeepStrictEqual } from 'node:util';
import { isObject, type JsonObject } from '../../gateway/json.ts';
import { protocolOf } from '../../gateway/protocols/all.ts';
import type { Protocol } from '../../gateway/protocols/protocol.ts';
import { normalize, type NormalizedResponse } from '../support/oracles/normalized-response.ts';
import { trialOverHttp } from '../support/harness/trial-over-http.ts';
import { modeIn, RETRY, type Client } from './client.ts';
import { runClient, type RunResult } from './run.ts';
import { recordedOf, type RecordFigures } from './session.ts';
import { Tap, type Exchange } from './tap.ts';
import { isModelCall, type ToySession } from './toy-session.ts';

type Sampling = { temperature: number; max_tokens: number };
type Answer = { status: number; text: string };
export type Comparison = { what: string; through: NormalizedResponse; direct: NormalizedResponse };
/** `ran` is the client's result, `recorded` what the gateway before vLLM has of it. */
export type BesideResult = { ran: RunResult; recorded: RecordFigures; compared: Comparison[] };
type Where = {
  folder: string;
  gateway: { url: string; adminKey: string };
  vllm: string;
  limitMs: number;
  signal: AbortSignal;
};

/** A small model's replies to such prompts are nonsense, so a few tokens are enough. */
const GREEDY: Sampling = { temperature: 0, max_tokens: 8 };

/** Agents' prompts are long. A token's probabilities depend on which requests are computed together, so requests run one at a time. */
export const ONE_AT_A_TIME = ['--max-model-len', '65536', '--max-num-seqs', '1'];

/** Runs a client through a gateway without token-in before a real vLLM, then sends the same requests to vLLM itself. */
export async function clientBesideVllm(
  client: Client,
  { folder, gateway, vllm, limitMs, signal }: Where,
): Promise<BesideResult> {
  const tap = await new Tap(gateway.url).start();
  try {
    const trial = await trialOverHttp(gateway, client.name, { sampling: GREEDY });
    const ran = await runClient(client, {
      folder,
      trialUrl: `${tap.url}/${client.name}`,
      key: trial.key,
      limitMs,
      modes: plainModes(client),
    });
    const asked = tap.exchanges.filter(isModelCall);
    const direct = await askVllm(asked, vllm, signal);
    return {
      ran,
      recorded: recordedOf(await trial.session(), await trial.samples()),
      compared: compare(
        asked,
        asked.map(({ status, reply }) => ({ status, text: reply })),
        direct,
      ),
    };
  } finally {
    await tap.stop();
  }
}

/** Sends each request of a client's session with the toy engine to the gateway and to vLLM itself. */
export async function sessionBesideVllm(
  client: Client,
  played: ToySession,
  { gateway, vllm, signal }: Omit<Where, 'folder' | 'limitMs'>,
): Promise<Omit<BesideResult, 'ran'>> {
  const plain = plainModes(client);
  const asked = played.exchanges.filter(
    (each) => isModelCall(each) && plain.includes(modeIn(client, JSON.stringify(each.body))?.name ?? plain[0] ?? ''),
  );
  const trial = await trialOverHttp(gateway, `${client.name}-session`, { sampling: GREEDY });
  const through = await askAgain(asked, ({ path }, body) => trial.ask(path.replace('/v1', ''), body, { signal }));
  const direct = await askVllm(asked, vllm, signal);
  return {
    recorded: recordedOf(await trial.session(), await trial.samples()),
    compared: compare(asked, through, direct),
  };
}

/** Leaves out the modes with a schema or a forced tool, which a small model does not follow, and the retry mode, which sends a request twice. */
const plainModes = ({ modes }: Client): string[] =>
  modes.flatMap(({ name, constrained }) => (constrained || name === RETRY ? [] : [name]));

/** Sends vLLM itself each request as the trial's sampling changes it. */
const askVllm = (asked: readonly Exchange[], vllm: string, signal: AbortSignal): Promise<Answer[]> =>
  askAgain(asked, (protocol, body) =>
    fetch(`${vllm}${protocol.path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(forced(body, protocol, GREEDY)),
      signal,
    }),
  );

/** Sends all of them again, in their order. A request that names a response names the one that was answered here. */
async function askAgain(
  asked: readonly Exchange[],
  ask: (protocol: Protocol, body: JsonObject) => Promise<Response>,
): Promise<Answer[]> {
  const ids = new Map<unknown, unknown>();
  const answers: Answer[] = [];
  for (const { path, body, reply } of asked) {
    const protocol = protocolOf(path);
    if (!protocol) throw new Error(`${path} is not a route of a model`);
    const { previous_response_id: previous } = body;
    const answer = await ask(protocol, { ...body, ...(previous ? { previous_response_id: ids.get(previous) } : {}) });
    const text = await answer.text();
    if (protocol.name === 'responses') ids.set(responseId(reply), responseId(text));
    answers.push({ status: answer.status, text });
  }
  return answers;
}

function compare(asked: readonly Exchange[], through: readonly Answer[], direct: readonly Answer[]): Comparison[] {
  const normalized = (answer: Answer | undefined): NormalizedResponse =>
    normalize(answer?.status ?? 0, answer?.text ?? '', FORCED);
  return asked.map(({ path, body }, i) => ({
    what: `${protocolOf(path)?.name}${body.stream === true ? ', stream' : ''}`,
    through: normalized(through[i]),
    direct: normalized(direct[i]),
  }));
}

/** Fields that a response repeats from its request: through the gateway as the client sent them, from vLLM as the trial forces them. */
const FORCED = ['temperature', 'max_output_tokens'];

/** True when the answers differ. A refusal of vLLM is in the gateway's words, so only success is compared. */
export const differs = ({ through, direct }: Comparison): boolean =>
  direct.status === 200 ? !isDeepStrictEqual(through, direct) : through.status !== direct.status;

export const isAnswered = ({ direct }: Comparison): boolean => direct.status === 200;

/** Counts the requests that vLLM itself refused, by status. */
export const refusedIn = (compared: readonly Comparison[]): Record<string, number> =>
  Object.fromEntries(
    Object.entries(
      Object.groupBy(
        compared.filter((each) => !isAnswered(each)),
        ({ direct }) => direct.status,
      ),
    ).map(([status, those]) => [status, those?.length ?? 0]),
  );

/** Returns a request as the gateway changes it for a trial with this sampling, in the request's own protocol. */
function forced(body: JsonObject, { name }: Protocol, { temperature, max_tokens }: Sampling): JsonObject {
  const limit =
    name === 'responses'
      ? 'max_output_tokens'
      : 'max_completion_tokens' in body
        ? 'max_completion_tokens'
        : 'max_tokens';
  const own = body[limit];
  return {
    ...body,
    model: 'policy',
    temperature,
    [limit]: Math.min(typeof own === 'number' ? own : max_tokens, max_tokens),
  };
}

const responseId = (text: string): unknown => /"id": ?"(resp_[^"]+)"/.exec(text)?.[1];

/** Describes where two answers first differ. */
export function firstDifference({ through, direct }: Comparison): string {
  if (through.status !== direct.status)
    return `${through.status} through the gateway, ${direct.status} from vLLM: ${JSON.stringify(direct.events).slice(0, 300)}`;
  const at = through.events.findIndex((event, i) => !isDeepStrictEqual(event, direct.events[i]));
  const [here, there] = [through.events, direct.events].map(
    (events) => events[at < 0 ? Math.min(through.events.length, direct.events.length) : at],
  );
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
