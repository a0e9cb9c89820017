import { z } from 'zod';
import { MAX_DEPTH } from './json.ts';

/** A setting of the gateway, in the unit in which users write it. */
type Declaration = {
  /** Its name in `GatewaySettings`. */
  name: string;
  /** Describes the setting in `--help` and docs/gateway.md. */
  about: string;
  placeholder: string;
  /** The type to which the text of a flag or variable is converted. Without it the text itself is the value. */
  from?: 'number' | 'boolean';
  schema: z.ZodType<boolean | number | string>;
  default: boolean | number | string;
  /** The default in a Worker, which has 128 MB of memory for all its requests, if it differs. */
  workerDefault?: number;
  /** The number by which the value is multiplied for `GatewaySettings`. */
  times?: number;
};

const trueOrFalse = { placeholder: 'BOOL', from: 'boolean', schema: z.boolean('true or false') } as const;
const seconds = {
  placeholder: 'SECONDS',
  from: 'number',
  schema: z.number('a number of seconds').positive('more than 0 seconds'),
  times: 1000,
} as const;
const count = { placeholder: 'N', from: 'number', schema: z.int('a whole number').min(1, 'at least 1') } as const;
const bytes = { ...count, placeholder: 'BYTES' } as const;
const mebibytes = { ...count, placeholder: 'MB', times: 2 ** 20 } as const;

/**
 * The settings of the gateway, on Node and in a Worker. The key is the key in YAML; the flag, the variable, `--help` and the table in
 * docs/gateway.md follow from it.
 */
export const GATEWAY_SETTINGS = {
  token_in: {
    ...trueOrFalse,
    name: 'tokenIn',
    about: 'continue conversations from their recorded ids where the engine can',
    default: true,
  },
  budget_end: {
    name: 'budgetEnd',
    about: "at a budget's end: `length` (an empty reply) or `refuse` (429)",
    placeholder: 'HOW',
    schema: z.enum(['length', 'refuse'], 'length or refuse'),
    default: 'length',
  },
  strict_model: {
    ...trueOrFalse,
    name: 'strictModel',
    about: "true: answer 404 to a model name other than the policy's",
    default: false,
  },
  hold_seconds: {
    ...seconds,
    name: 'holdMs',
    about: 'seconds that a call waits for an engine in rotation',
    default: 20,
  },
  kv_wait_seconds: {
    ...seconds,
    schema: z.number('a number of seconds').min(0, '0 seconds or more'),
    name: 'kvWaitMs',
    about:
      'seconds that a call waits for room in the KV cache of an engine that reports its size; 0: calls never wait for it',
    default: 600,
  },
  affinity_headers: {
    ...trueOrFalse,
    name: 'affinityHeaders',
    about: 'give each call to an engine headers with a hash of its trial, for a router in front of several engines',
    default: true,
  },
  idle_seconds: {
    ...seconds,
    name: 'idleMs',
    about:
      'seconds that an engine may be silent within a stream (before a reply, the gateway then checks that it is alive), and that a call waits for a reserved budget',
    default: 600,
  },
  keep_alive_seconds: {
    ...seconds,
    name: 'keepAliveMs',
    about: 'seconds without a token after which a stream sends its agent a comment line',
    default: 15,
  },
  store_wait_seconds: {
    ...seconds,
    name: 'storeWaitMs',
    about: 'seconds that a reply waits for PostgreSQL',
    default: 10,
  },
  max_calls_in_flight: {
    ...count,
    name: 'maxCallsInFlight',
    about: "calls that one trial may have open at once in each of a gateway's two threads",
    default: 256,
  },
  conversation_memory_mb: {
    ...mebibytes,
    name: 'conversationMemoryBytes',
    about:
      "MiB of open trials' conversations that each of a gateway's two threads may hold; others are read from PostgreSQL",
    default: 128,
    workerDefault: 32,
  },
  // Anthropic's own API has the same limit.
  max_body_bytes: {
    ...bytes,
    name: 'maxBodyBytes',
    about: 'largest request in bytes, after decoding',
    default: 32 * 2 ** 20,
    workerDefault: 16 * 2 ** 20,
  },
  max_body_nodes: {
    ...count,
    name: 'maxBodyNodes',
    about: 'most values and keys of one request, counted by brackets, commas and colons',
    default: 500_000,
    workerDefault: 200_000,
  },
  max_body_depth: {
    ...count,
    name: 'maxBodyDepth',
    about: `deepest nesting of one request, at most ${MAX_DEPTH}`,
    schema: count.schema.max(MAX_DEPTH, `at most ${MAX_DEPTH}`),
    default: MAX_DEPTH,
  },
  max_body_bytes_in_flight: {
    ...bytes,
    name: 'maxBodyBytesInFlight',
    about:
      "bytes that the bodies of all open calls may have together, in each of a gateway's two threads; one trial may have a quarter",
    default: 256 * 2 ** 20,
    workerDefault: 32 * 2 ** 20,
  },
  compat: {
    name: 'compat',
    about: "`verl`: sessions outside any run also open by their URL, without a key, for verl-recipe PR 83's client",
    placeholder: 'WHOSE',
    schema: z.enum(['none', 'verl'], 'none or verl'),
    default: 'none',
  },
} as const satisfies Record<string, Declaration>;

type Declarations = typeof GATEWAY_SETTINGS;
export type GatewayKey = keyof Declarations;

/** The settings in the names and units of the code. */
export type GatewaySettings = {
  -readonly [Key in GatewayKey as Declarations[Key]['name']]: z.output<Declarations[Key]['schema']>;
};

export const GATEWAY_KEYS = Object.keys(GATEWAY_SETTINGS).filter((key): key is GatewayKey => key in GATEWAY_SETTINGS);

export const declarationOf = (key: GatewayKey): Declaration => GATEWAY_SETTINGS[key];
export const variableOf = (key: string): string => `TRIALGATE_${key.toUpperCase()}`;

// `Object.fromEntries` forgets which key has which type.
const shape = Object.fromEntries(GATEWAY_KEYS.map((key) => [key, GATEWAY_SETTINGS[key].schema])) as {
  [Key in GatewayKey]: Declarations[Key]['schema'];
};

/** Checks the settings in the names and units in which users write them. */
export const givenSettings = z.object(shape);

/** Returns what the text of a flag or variable stands for. A text of another type stays as it is, for the check to refuse. */
export function valueOfText(text: string, type: Declaration['from']): unknown {
  if (type === 'number') return /^-?\d+(\.\d+)?$/.test(text.trim()) ? Number(text) : text;
  if (type === 'boolean')
    return text === 'true' || text === '1' ? true : text === 'false' || text === '0' ? false : text;
  return text;
}

export function settingsFrom(given: z.output<typeof givenSettings>): GatewaySettings {
  const named = GATEWAY_KEYS.map((key) => {
    const { name, times = 1 } = declarationOf(key);
    const value = given[key];
    return [name, typeof value === 'number' ? value * times : value] as const;
  });
  return Object.fromEntries(named) as GatewaySettings;
}

export const DEFAULT_SETTINGS = settingsFrom(
  givenSettings.parse(Object.fromEntries(GATEWAY_KEYS.map((key) => [key, declarationOf(key).default]))),
);
