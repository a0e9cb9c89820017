import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import { DEFAULT_SETTINGS, type GatewaySettings } from '../deps.ts';
import { isObject, MAX_DEPTH } from '../json.ts';

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

/** Reads seconds and returns milliseconds. */
const seconds = (ifAbsent: number) => z.coerce.number('a number of seconds').positive('more than 0 seconds').transform((value) => value * 1000).default(ifAbsent);
const choice = (ifAbsent: boolean) => z.enum(['true', 'false'], 'true or false').transform((value) => value === 'true').default(ifAbsent);

/** A Worker has 128 MB of memory for all its requests. */
const MAX_BODY_BYTES = 16 * 2 ** 20;
const MAX_BODY_NODES = 200_000;
const MAX_BODY_BYTES_IN_FLIGHT = 32 * 2 ** 20;

/** Variables have the same names as on Node. An unset one is absent or empty. */
const environment = z.object({
  HYPERDRIVE: z.object({ connectionString: z.string() }, 'a Hyperdrive binding'),
  DOCS: z.custom<Docs>((value) => isObject(value) && typeof value.fetch === 'function', 'the assets of deploy/wrangler.jsonc').optional(),
  TRIALGATE_SECRET: z.string('a secret: `wrangler secret put TRIALGATE_SECRET`').min(16, 'at least 16 characters'),
  TRIALGATE_ADMIN_KEY: z.string('a key: `wrangler secret put TRIALGATE_ADMIN_KEY`').min(8, 'at least 8 characters'),
  TRIALGATE_ENGINES: engineUrls,
  TRIALGATE_TOKEN_IN: choice(DEFAULT_SETTINGS.tokenIn),
  TRIALGATE_STRICT_MODEL: choice(DEFAULT_SETTINGS.strictModel),
  TRIALGATE_BUDGET_END: z.enum(['length', 'refuse'], 'length or refuse').default(DEFAULT_SETTINGS.budgetEnd),
  TRIALGATE_HOLD_SECONDS: seconds(DEFAULT_SETTINGS.holdMs),
  TRIALGATE_IDLE_SECONDS: seconds(DEFAULT_SETTINGS.idleMs),
  TRIALGATE_STORE_WAIT_SECONDS: seconds(DEFAULT_SETTINGS.storeWaitMs),
  TRIALGATE_KEEP_ALIVE_SECONDS: seconds(DEFAULT_SETTINGS.keepAliveMs),
  TRIALGATE_MAX_CALLS_IN_FLIGHT: z.coerce.number('a number of calls').int().positive('more than 0').default(DEFAULT_SETTINGS.maxCallsInFlight),
  TRIALGATE_COMPAT: z.enum(['none', 'verl'], 'none or verl').default(DEFAULT_SETTINGS.compat),
  TRIALGATE_MAX_BODY_BYTES: z.coerce.number('a number of bytes').int().positive('more than 0 bytes').default(MAX_BODY_BYTES),
  TRIALGATE_MAX_BODY_NODES: z.coerce.number('a number of values and keys').int().positive('more than 0').default(MAX_BODY_NODES),
  TRIALGATE_MAX_BODY_BYTES_IN_FLIGHT: z.coerce.number('a number of bytes').int().positive('more than 0 bytes').default(MAX_BODY_BYTES_IN_FLIGHT),
  TRIALGATE_MAX_BODY_DEPTH: z.coerce.number('a number of levels').int().positive('more than 0').max(MAX_DEPTH, `at most ${MAX_DEPTH}`).default(DEFAULT_SETTINGS.maxBodyDepth),
});

/**
 * Returns the Worker's bindings and variables. @throws TrialgateError `missing_prerequisite` with one line a fault: the variable and what
 * was expected, never its value.
 */
export function readEnvironment(env: Record<string, unknown>): WorkerOptions {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
  const checked = environment.safeParse(given);
  if (!checked.success) {
    const faults = checked.error.issues.map(({ path, message }) => `${String(path[0])}: expected ${message}`);
    throw new TrialgateError('missing_prerequisite', [...new Set(faults)].join('\n'));
  }
  const own = checked.data;
  return {
    databaseUrl: own.HYPERDRIVE.connectionString,
    secret: own.TRIALGATE_SECRET,
    adminKey: own.TRIALGATE_ADMIN_KEY,
    engines: own.TRIALGATE_ENGINES,
    docs: own.DOCS,
    settings: {
      tokenIn: own.TRIALGATE_TOKEN_IN,
      strictModel: own.TRIALGATE_STRICT_MODEL,
      budgetEnd: own.TRIALGATE_BUDGET_END,
      holdMs: own.TRIALGATE_HOLD_SECONDS,
      idleMs: own.TRIALGATE_IDLE_SECONDS,
      storeWaitMs: own.TRIALGATE_STORE_WAIT_SECONDS,
      keepAliveMs: own.TRIALGATE_KEEP_ALIVE_SECONDS,
      conversationMemoryBytes: DEFAULT_SETTINGS.conversationMemoryBytes,
      maxCallsInFlight: own.TRIALGATE_MAX_CALLS_IN_FLIGHT,
      compat: own.TRIALGATE_COMPAT,
      maxBodyBytes: own.TRIALGATE_MAX_BODY_BYTES,
      maxBodyNodes: own.TRIALGATE_MAX_BODY_NODES,
      maxBodyDepth: own.TRIALGATE_MAX_BODY_DEPTH,
      maxBodyBytesInFlight: own.TRIALGATE_MAX_BODY_BYTES_IN_FLIGHT,
    },
  };
}
