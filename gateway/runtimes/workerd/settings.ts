import { z } from 'zod';
import { RELAY } from '../../../core/engine-url.ts';
import { makeLog, type Log } from '../../../core/log.ts';
import { TrialgateError } from '../../../core/errors.ts';
import { ENGINE_KEY, readEngineKeys, type EngineKeys } from '../../engines/engine-keys.ts';
import { WORKER_ENGINE_URL } from '../../engines/url-forms.ts';
import { requireTwoKeys } from '../../http/auth.ts';
import { isObject } from '../../json.ts';
import {
  declarationOf,
  GATEWAY_KEYS,
  givenSettings,
  settingsFrom,
  valueOfText,
  variableOf,
  type GatewaySettings,
} from '../../settings.ts';

/** A deployment's static assets. */
type Docs = { fetch: (url: string) => Promise<Response> };

/** The deployment's Durable Objects of one class. */
type Objects = { idFromName: (name: string) => unknown; get: (id: unknown) => RelayStub };
/** The Durable Object that holds the sockets of relay workers. */
export type RelayStub = { fetch: (request: Request | string, init?: RequestInit) => Promise<Response> };

export type WorkerOptions = {
  /** Hyperdrive's address of the database. */
  databaseUrl: string;
  secret: string;
  adminKey: string;
  readKey: string | null;
  engines: string[];
  engineKeys: EngineKeys;
  /** If absent, the API's page has no files. */
  docs: Docs | undefined;
  /** Null when no relay workers may dial in. */
  relay: RelayStub | null;
  settings: GatewaySettings;
  log: Log;
};

const EXPECTED = 'engines such as https://engine.example, separated by commas';
export const engineUrls = z
  .string(EXPECTED)
  .transform((text) => text.split(',').map((url) => url.trim().replace(/\/+$/, '')))
  .pipe(z.array(z.string().regex(WORKER_ENGINE_URL, `${EXPECTED}, or relay; a Worker reaches none through \`unix:\``)));

const EXPECTED_KEYS = 'HOST=VARIABLE, separated by commas, where VARIABLE is a secret of the Worker';
const engineKeys = z
  .string(EXPECTED_KEYS)
  .default('')
  .transform((text) => text.split(',').flatMap((entry) => entry.trim() || []))
  .pipe(z.array(z.string().regex(ENGINE_KEY, EXPECTED_KEYS)));

const bindings = z.object({
  HYPERDRIVE: z.object({ connectionString: z.string() }, 'a Hyperdrive binding'),
  DOCS: z
    .custom<Docs>(
      (value) => isObject(value) && typeof value.fetch === 'function',
      'the assets of deploy/wrangler.jsonc',
    )
    .optional(),
  RELAY: z
    .custom<Objects>((value) => isObject(value) && typeof value.idFromName === 'function', 'the object RelayObject')
    .optional(),
  TRIALGATE_SECRET: z.string('a secret: `wrangler secret put TRIALGATE_SECRET`').min(16, 'at least 16 characters'),
  TRIALGATE_ADMIN_KEY: z.string('a key: `wrangler secret put TRIALGATE_ADMIN_KEY`').min(8, 'at least 8 characters'),
  TRIALGATE_READ_KEY: z
    .string('a key: `wrangler secret put TRIALGATE_READ_KEY`')
    .min(8, 'at least 8 characters')
    .optional(),
  TRIALGATE_ENGINES: engineUrls,
  TRIALGATE_ENGINE_KEYS: engineKeys,
  TRIALGATE_LOG_FORMAT: z.enum(['auto', 'text', 'json'], 'auto, text or json').default('auto'),
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
    RELAY: objects,
    TRIALGATE_SECRET: secret,
    TRIALGATE_ADMIN_KEY: adminKey,
    TRIALGATE_READ_KEY: readKey = null,
    TRIALGATE_ENGINES: engines,
    TRIALGATE_ENGINE_KEYS: keys,
    TRIALGATE_LOG_FORMAT: format,
  } = bound.data;
  requireTwoKeys(adminKey, readKey);
  return {
    databaseUrl: HYPERDRIVE.connectionString,
    secret,
    adminKey,
    readKey,
    engines,
    engineKeys: readEngineKeys(keys, (name) => (typeof given[name] === 'string' ? given[name] : null)),
    docs,
    relay: objects && engines.includes(RELAY) ? objects.get(objects.idFromName(RELAY)) : null,
    settings: settingsFrom(settings.data),
    log: makeLog({ process: 'gateway', format: format === 'json' ? 'json' : 'text', write: console.error }),
  };
}
