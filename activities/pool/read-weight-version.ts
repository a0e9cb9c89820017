import { z } from 'zod';
import { weightVersionIn, WEIGHT_ROUTES } from '../../core/weight-info.ts';
import { getFromEngine, type RelayRoute } from './get-from-engine.ts';

const models = z.object({ data: z.array(z.object({ id: z.string() })) });

/**
 * Returns the weight version that an engine reports, or `expected` when it lists a LoRA adapter of that name. Returns null when it does not
 * answer in time.
 */
export async function readWeightVersion(
  url: string,
  relay: RelayRoute,
  { timeoutMs = 5_000, expected = null }: { timeoutMs?: number | undefined; expected?: string | null } = {},
): Promise<string | null> {
  try {
    const reported = await readReported(url, relay, timeoutMs);
    if (reported === null || expected === null || reported === expected) return reported;
    const { text } = await getFromEngine(url, '/v1/models', timeoutMs, relay);
    const listed = models.safeParse(JSON.parse(text)).data?.data ?? [];
    return listed.some(({ id }) => id === expected) ? expected : reported;
  } catch {
    return null;
  }
}

async function readReported(url: string, relay: RelayRoute, timeoutMs: number): Promise<string | null> {
  for (const route of Object.values(WEIGHT_ROUTES)) {
    const { status, text } = await getFromEngine(url, route, timeoutMs, relay);
    if (status === 200) return weightVersionIn(JSON.parse(text));
  }
  return null;
}
