import { setTimeout as sleep } from 'node:timers/promises';

const TIMEOUT_MS = 30_000;
const POLL_MS = 500;
let turn = 0;

/**
 * Returns a gateway that answers now, taking turns among them. It waits up to half a minute for one, because an attempt without a gateway
 * is lost.
 * @throws Error that names the gateways when none answers
 */
export async function liveGateway(
  urls: readonly string[],
  signal: AbortSignal,
  timeoutMs = TIMEOUT_MS,
): Promise<string> {
  const first = turn++;
  const inTurn = urls.map((_, i) => urls[(first + i) % urls.length] ?? '');
  for (const end = Date.now() + timeoutMs; ; await sleep(POLL_MS, undefined, { signal })) {
    for (const url of inTurn) if (await answers(url, signal)) return url;
    if (Date.now() >= end)
      throw new Error(
        `no gateway answers at ${urls.join(', ')}: start one, or correct the gateway URLs of this worker`,
      );
  }
}

export async function answers(url: string, signal: AbortSignal): Promise<boolean> {
  try {
    const reply = await fetch(`${url}/health`, { signal: AbortSignal.any([signal, AbortSignal.timeout(3000)]) });
    await reply.body?.cancel();
    return reply.ok;
  } catch {
    signal.throwIfAborted();
    return false;
  }
}
