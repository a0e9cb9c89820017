import { getFromEngine, type RelayRoute } from '../../activities/pool/get-from-engine.ts';
import { TrialgateError } from '../../core/errors.ts';
import { keyHeader, type EngineKeys } from '../../gateway/engines/engine-keys.ts';

const ASK_MS = 10_000;
const MODELS = '/v1/models';

/**
 * Checks that a server of OpenAI's completions gives what the gateway asks it first: its list of models.
 * @param from the keys; or, where only the gateways need reach the server and have its key, who is told of one that cannot be reached from here
 * @throws TrialgateError `missing_prerequisite` with the server and what to do
 */
export async function checkServer(
  url: string,
  relay: RelayRoute,
  from: { keys: EngineKeys } | { report: (line: string) => void },
): Promise<void> {
  const refuse = (what: string, cause?: unknown): never => {
    throw new TrialgateError('missing_prerequisite', `the server ${url} ${what}`, { cause });
  };
  const keys = 'keys' in from ? from.keys : null;
  const answer = await getFromEngine(url, MODELS, ASK_MS, relay, keyHeader(keys ?? {}, url)).catch((cause: unknown) => {
    const why = cause instanceof Error ? cause.message || cause.name : String(cause);
    if ('keys' in from) return refuse(`cannot be reached: ${why}. Start it, or name another`, cause);
    from.report(
      `WARNING: the server ${url} cannot be reached from here: ${why}. That does no harm if the gateways reach it; otherwise start it, because the trials wait for it`,
    );
    return null;
  });
  if (answer === null) return;
  const { status } = answer;
  if (status === 401 || status === 403) {
    if (keys === null) return;
    // The text of such a reply may repeat the key.
    refuse(
      `answered ${status}: it wants a key, or refuses the one that it got. Name the variable or the file that has its key: --engine-keys HOST=VARIABLE`,
    );
  }
  if (status !== 200)
    refuse(`answered ${status} instead of its list of models: is its base path right (such as https://host/api/v1)?`);
}
