import { weightVersionIn, WEIGHT_INFO } from '../../core/weight-info.ts';
import { getFromEngine } from './get-from-engine.ts';

/** Returns the weight version that an engine reports; null when it does not answer in time. */
export async function readWeightVersion(url: string, timeoutMs = 5_000): Promise<string | null> {
  try {
    const { status, text } = await getFromEngine(url, WEIGHT_INFO, timeoutMs);
    const weightVersion = weightVersionIn(JSON.parse(text));
    return status === 200 ? weightVersion : null;
  } catch {
    return null;
  }
}
