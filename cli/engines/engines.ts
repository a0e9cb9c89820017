import { setTimeout as sleep } from 'node:timers/promises';
import { TrialgateError, type ErrorCode } from '../../core/errors.ts';
import { engineList, failed, type Engine, type EngineChange } from '../../gateway/http/openapi/schemas.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
import { readSecrets } from '../config/secrets.ts';
import { table } from '../show/table.ts';

/** After this time no gateway gives a drained engine a new call. */
const POLL_MS = 500;

const warn = (line: string) => console.error(`WARNING: ${line}`);

/** Returns the engines as all gateways see them, with the calls of all of them. */
export async function readEngines(config: Deployment, whenAway = warn): Promise<Engine[]> {
  const { gatewayUrls } = connectionsOf(config);
  const answers = await Promise.allSettled(gatewayUrls.map((gateway) => ask(config, gateway)));
  const engines = new Map<string, Engine>();
  let away: unknown = null;
  for (const answer of answers) {
    if (answer.status === 'rejected') away = answer.reason;
    else
      for (const engine of answer.value) {
        const { calls_in_flight: before = 0 } = engines.get(engine.url) ?? {};
        engines.set(engine.url, { ...engine, calls_in_flight: before + engine.calls_in_flight });
      }
  }
  if (away !== null) {
    if (!(away instanceof Away) || answers.every(({ status }) => status === 'rejected')) throw away;
    whenAway(`${away.message}. Its calls are not counted`);
  }
  return [...engines.values()].toSorted((a, b) => a.url.localeCompare(b.url));
}

/** Changes one engine through the first gateway that answers, because all gateways read the same table. Returns a sentence about the result. */
export async function changeEngine(config: Deployment, change: EngineChange['change'], url: string): Promise<string> {
  let away: unknown = null;
  for (const gateway of connectionsOf(config).gatewayUrls) {
    try {
      const engines = await ask(config, gateway, { url, change });
      return sentenceOf(
        url,
        engines.find((engine) => engine.url === url),
      );
    } catch (error) {
      if (!(error instanceof Away)) throw error;
      away = error;
    }
  }
  throw away;
}

/** Waits until no gateway has calls at the engine. */
export async function awaitDrained(config: Deployment, url: string, signal: AbortSignal): Promise<void> {
  const warned = new Set<string>();
  const warnOnce = (line: string) => {
    if (!warned.has(line)) warn(line);
    warned.add(line);
  };
  do await sleep(POLL_MS, undefined, { signal });
  while ((await readEngines(config, warnOnce)).some((engine) => engine.url === url && engine.calls_in_flight > 0));
}

export const engineTable = (engines: readonly Engine[]): string =>
  table(
    ['engine', 'named by', 'state', 'run', 'weights', 'calls'],
    engines.map((engine) => [
      engine.url,
      engine.found_by ?? '–',
      stateOf(engine),
      engine.run_id ?? '–',
      engine.weight_version ?? '–',
      String(engine.calls_in_flight),
    ]),
  );

function stateOf({ state, drained_by_hand, in_rotation }: Engine): string {
  if (state === 'draining') return drained_by_hand ? 'draining, by hand' : 'draining';
  return state === 'serving' && !in_rotation ? 'waits for weights' : state;
}

function sentenceOf(url: string, engine: Engine | undefined): string {
  if (!engine) return `${url} is no engine of the deployment any more`;
  if (engine.state === 'left')
    return `${url} has left; ${engine.calls_in_flight} calls of this gateway are under way there`;
  if (engine.state === 'serving')
    return engine.in_rotation ? `${url} gets calls` : `${url} gets calls once run ${engine.run_id} has published to it`;
  if (engine.drained_by_hand) return `${url} gets no new calls; ${engine.calls_in_flight} calls are under way there`;
  return `${url} still gets no new calls: ${engine.found_by === 'file' ? 'the file drains it' : 'its pod is not ready, or is terminating'}`;
}

class Away extends TrialgateError {
  constructor(gateway: string, cause: unknown) {
    super(
      'missing_prerequisite',
      `the gateway ${gateway} does not answer: start it, or name another with --gateway-url`,
      {
        cause,
      },
    );
  }
}

async function ask(config: Deployment, gateway: string, change?: EngineChange): Promise<Engine[]> {
  // A gateway that runs alone on this machine may have no key.
  const key = config.admin_key ?? readSecrets(config.home)?.admin_key;
  const reply = await fetch(`${gateway}/engines`, {
    method: change ? 'POST' : 'GET',
    headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
    ...(change ? { body: JSON.stringify(change) } : {}),
    signal: AbortSignal.timeout(30_000),
  }).catch((cause: unknown) => {
    throw new Away(gateway, cause);
  });
  const body: unknown = await reply.json();
  if (reply.ok) return engineList.parse(body).engines;
  const { message } = failed.parse(body).error;
  throw new TrialgateError(CODES[reply.status] ?? 'bad_input', message);
}

const CODES: Record<number, ErrorCode> = { 401: 'unauthorized', 404: 'not_found', 503: 'store_unavailable' };
