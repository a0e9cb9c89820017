import { existsSync, readFileSync } from 'node:fs';
import { z } from 'zod';

const entry = z.object({
  at: z.number(),
  /** The mark of what was sampled; absent: only the label changed. */
  serial: z.string().optional(),
  label: z.string().optional(),
  /** `cache_salt` of what was sampled. */
  salt: z.string().optional(),
  weights: z.string().optional(),
  /** What should never happen to an engine. */
  fault: z.string().optional(),
});
export type EngineEntry = z.output<typeof entry>;

export function readEngineLog(file: string): EngineEntry[] {
  if (!existsSync(file)) return [];
  // A killed engine's last line may be cut.
  return readFileSync(file, 'utf8').split('\n').flatMap((line) => {
    try {
      return [entry.parse(JSON.parse(line))];
    } catch {
      return [];
    }
  });
}
