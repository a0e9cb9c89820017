import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import { isObject } from '../json.ts';
import {
  declarationOf,
  GATEWAY_KEYS,
  givenSettings,
  settingsFrom,
  valueOfText,
  variableOf,
  type GatewaySettings,
} from '../settings.ts';

/** A deployment's static assets. */
type Docs = { fetch: (url: string) => Promise<Response> };

export type WorkerOptions = {
  /** Hyperdrive's address of the database. */
  databaseUrl: string;
  secret: string;
  adminKey: string;
  engines: string[];
  /** If absent, the API's page has no files. */
  docs: Docs | undefined;
  settings: GatewaySettings;
};

const EXPECTED = 'engines such as https://engine.example, separated by commas';
export const engineUrls = z
  .string(EXPECTED)
  .transform((text) => text.split(',').map((url) => url.trim().replace(/\/+$/, '')))
  .pipe(z.array(z.string().regex(/^https?:\/\/[^/\s]+$/, `${EXPECTED}; a Worker reaches none through \`unix:\``)));

const bindings = z.object({
  HYPERDRIVE: z.object({ connectionString: z.string() }, 'a Hyperdrive binding'),
  DOCS: z
    .custom<Docs>(
      (value) => isObject(value) && typeof value.fetch === 'function',
      'the assets of deploy/wrangler.jsonc',
    )
    .optional(),
  TRIALGATE_SECRET: z.string('a secret: `wrangler secret put TRIALGATE_SECRET`').min(16, 'at least 16 characters'),
  TRIALGATE_ADMIN_KEY: z.string('a key: `wrangler secret put TRIALGATE_ADMIN_KEY`').min(8, 'at least 8 characters'),
  TRIALGATE_ENGINES: engineUrls,
});

/**
 * Returns the Worker's bindings and variables. An unset one is absent or empty. @throws TrialgateError `missing_prerequisite` with one
 * line a fault: the variable and what was expected, never its value.
 */
export function readEnvironment(env: Record<string, unknown>): WorkerOptions {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
  const bound = bindings.safeParse(given);
  const settings = givenSettings.safeParse(
    Object.fromEntries(
      GATEWAY_KEYS.map((key) => {
        const { from, default: onNode, workerDefault = onNode } = declarationOf(key);
        const value = given[variableOf(key)] ?? workerDefault;
        return [key, typeof value === 'string' ? valueOfText(value, from) : value];
      }),
    ),
  );
  if (!bound.success || !settings.success) {
    const faults = [
      ...(bound.error?.issues ?? []).map(({ path, message }) => `${String(path[0])}: expected ${message}`),
      ...(settings.error?.issues ?? []).map(
        ({ path, message }) => `${variableOf(String(path[0]))}: expected ${message}`,
      ),
    ];
    throw new TrialgateError('missing_prerequisite', [...new Set(faults)].join('\n'));
  }
  const {
    HYPERDRIVE,
    DOCS: docs,
    TRIALGATE_SECRET: secret,
    TRIALGATE_ADMIN_KEY: adminKey,
    TRIALGATE_ENGINES: engines,
  } = bound.data;
  return {
    databaseUrl: HYPERDRIVE.connectionString,
    secret,
    adminKey,
    engines,
    docs,
    settings: settingsFrom(settings.data),
  };
}
