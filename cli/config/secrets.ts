import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import { parseJson } from '../../core/json.ts';
import { writeAtomically } from '../files.ts';
import { homeFolders } from '../folders.ts';

const secrets = z.object({
  admin_key: z.string().min(8),
  secret: z.string().min(16),
  postgres_password: z.string().min(8),
});
export type Secrets = z.output<typeof secrets>;

/** Returns the deployment's secrets. The first call makes them and writes `secrets.json`, which only its owner can read. */
export function secretsOf(home: string): Secrets {
  return readSecrets(home) ?? makeSecrets(home);
}

/** Returns the secrets of `secrets.json`, or null before the first start. */
export function readSecrets(home: string): Secrets | null {
  const file = homeFolders(home).secrets;
  let content: string;
  try {
    content = readFileSync(file, 'utf8');
  } catch {
    return null;
  }
  const parsed = secrets.safeParse(parseJson(content));
  if (parsed.success) return parsed.data;
  throw new TrialgateError(
    'bad_input',
    `${file} is damaged; restore it (agents' keys and PostgreSQL's password derive from it)`,
  );
}

function makeSecrets(home: string): Secrets {
  const random = (): string => randomBytes(24).toString('base64url');
  const made = { admin_key: random(), secret: random(), postgres_password: random() };
  const file = homeFolders(home).secrets;
  mkdirSync(path.dirname(file), { recursive: true });
  writeAtomically(file, `${JSON.stringify(made, null, 2)}\n`, 0o600);
  chmodSync(file, 0o600);
  return made;
}
