import { existsSync, readFileSync } from 'node:fs';
import { z } from 'zod';

const entry = z.object({
  at: z.number(),
  /** The serial number of the sampled reply. Absent when only the weight version changed. */
  serial: z.string().optional(),
  weightVersion: z.string().optional(),
  /** The `cache_salt` of the sampled reply. */
  salt: z.string().optional(),
  weights: z.string().optional(),
  /** An event that must never happen to an engine. */
  fault: z.string().optional(),
});
export type EngineEntry = z.output<typeof entry>;

export function readEngineLog(file: string): EngineEntry[] {
  if (!existsSync(file)) return [];
  // A killed engine's last line may be cut.
  return readFileSync(file, 'utf8')
    .split('\n')
    .flatMap((line) => {
      try {
        return [entry.parse(JSON.parse(line))];
      } catch {
        return [];
      }
    });
}
