import { createHash } from 'node:crypto';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

export const sha256Of = (content: string | Uint8Array): string => createHash('sha256').update(content).digest('hex');

type Content = {
  version?: number;
  /** The weights by their paths, whose digests the manifest has. */
  weights?: Record<string, string | Uint8Array>;
  /** Files that the manifest does not name. */
  others?: Record<string, string>;
  /** Links of the checkpoint to files. `linked` has the content of those that are weights. */
  links?: Record<string, string>;
  linked?: Record<string, string | Uint8Array>;
};

/** Writes a finished checkpoint as the trainer does, and returns its path. */
export function writeCheckpoint(checkpoints: string, name: string, content: Content): string {
  const { version = 1, weights = {}, others = {}, links = {}, linked = {} } = content;
  const folder = join(checkpoints, name);
  for (const path of ['x', ...Object.keys({ ...weights, ...others, ...links })])
    mkdirSync(dirname(join(folder, path)), { recursive: true });
  for (const [path, bytes] of Object.entries({ ...weights, ...others })) writeFileSync(join(folder, path), bytes);
  for (const [path, target] of Object.entries(links)) symlinkSync(target, join(folder, path));
  const files = Object.fromEntries(
    Object.entries({ ...weights, ...linked }).map(([path, bytes]) => [path, sha256Of(bytes)]),
  );
  writeFileSync(join(folder, 'manifest.json'), JSON.stringify({ version, files }));
  return folder;
}
