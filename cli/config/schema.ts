import { isIP } from 'node:net';
import { z } from 'zod';
import { RELAY } from '../../core/engine-url.ts';
import { ENGINE_KEY } from '../../gateway/engines/engine-keys.ts';
import { ENGINE_URL, ENGINE_URL_FORMS } from '../../gateway/engines/url-forms.ts';
import { givenSettings } from '../../gateway/settings.ts';
import type { SettingKey } from './settings.ts';

const port = z.int('a port (0 to 65535)').min(0, 'a port (0 to 65535)').max(65535, 'a port (0 to 65535)');
const text = z.string('text').min(1, 'text that is not empty');

const url = (protocols: string[], expected: string) =>
  text.refine((value) => URL.canParse(value) && protocols.includes(new URL(value).protocol), expected);

export const httpUrl = url(['http:', 'https:'], 'a URL such as http://127.0.0.1:8700').transform(withoutTrailingSlash);

export const engineUrl = text.regex(ENGINE_URL, ENGINE_URL_FORMS).transform(withoutTrailingSlash);

/** An engine of a deployment, or `relay` for all that relay workers bring. */
const deploymentEngine = z.union([z.literal(RELAY), engineUrl], `${ENGINE_URL_FORMS}; or relay`);

const keyPlaces = z.array(
  text.regex(ENGINE_KEY, 'HOST=VARIABLE or HOST=/path/to/file, which has the key'),
  'a list of HOST=VARIABLE or HOST=/path/to/file',
);

const gpus = z
  .array(
    z.union([z.int().min(0).transform(String), text.regex(/^(\d+|(GPU|MIG)-\S+)$/)], 'the number or UUID of a GPU'),
    'a list of GPUs such as [0, 1]',
  )
  .min(1, 'at least one GPU');

/** Checks the settings of a deployment. Defaults are in settings.ts, because `trialgate config` shows where each value comes from. */
export const deployment = z.strictObject({
  home: text,
  device: z.enum(['auto', 'cpu', 'cuda'], 'auto, cpu or cuda'),
  dtype: z.enum(['auto', 'bfloat16', 'float32'], 'auto, bfloat16 or float32'),
  python: text.optional(),
  database_url: url(['postgres:', 'postgresql:'], 'a URL such as postgres://user:password@host:5432/name').optional(),
  temporal_address: text
    .regex(/^[^\s:/]+(:\d{1,5})?$|^\[[0-9a-fA-F:]+\](:\d{1,5})?$/, 'an address such as 127.0.0.1:7233')
    .transform((address) => (/:\d+$/.test(address) ? address : `${address}:7233`))
    .optional(),
  gateway_url: z
    .preprocess(
      (value) => (typeof value === 'string' ? [value] : value),
      z.array(httpUrl, 'a URL, or a list of them').min(1, 'at least one URL'),
    )
    .optional(),
  gateway_host: text,
  gateway_port: port,
  gateways: z.int('a whole number').min(1, 'at least 1').max(64, 'at most 64'),
  temporal_port: port,
  temporal_ui_port: port.min(1, 'a port (1 to 65535)').optional(),
  postgres_port: port,
  admin_key: z.string('text').min(8, 'at least 8 characters').optional(),
  read_key: z.string('text').min(8, 'at least 8 characters').optional(),
  secret: z.string('text').min(16, 'at least 16 characters').optional(),
  engines: z.array(deploymentEngine, 'a list of engine URLs'),
  engine_keys: keyPlaces,
  trainer_keys: keyPlaces,
  engine_gpus: gpus.optional(),
  trainer_gpus: gpus.optional(),
  ranks: z.int('a whole number').min(1, 'at least 1'),
  launch: text.optional(),
  group_address: text.regex(/^\S+:\d{1,5}$/, 'an address such as node1:29400').optional(),
  pack_tokens: z.int('a number of tokens').min(1, 'at least 1 token').optional(),
  activation_checkpointing: z.boolean('true or false'),
  cpu_offload: z.boolean('true or false'),
  trainer_threads: z.int('a whole number').min(1, 'at least 1').optional(),
  peak_tflops: z.number('a number').positive('more than 0').optional(),
  metrics_address: text
    .regex(/^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:]+\]):\d{1,5}$/, 'an IP address and a port, such as 127.0.0.1:9464')
    .refine(
      (address) => isIP(hostOf(address).replaceAll(/[[\]]/g, '')) > 0,
      'an IP address and a port, such as 127.0.0.1:9464',
    )
    .refine((address) => portOf(address) >= 1 && portOf(address) <= 65_533, 'a port from 1 to 65533')
    .optional(),
  log_format: z.enum(['auto', 'text', 'json'], 'auto, text or json'),
  engines_file: text.optional(),
  engines_kubernetes: text.optional(),
  engines_kubernetes_namespace: text
    .regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, 'the name of a namespace: small letters, digits and -')
    .optional(),
  engines_kubernetes_port: port.min(1, 'a port (1 to 65535)'),
  engines_kubernetes_api: httpUrl.optional(),
  model: text,
  max_model_len: z.int('a number of tokens').min(16, 'at least 16 tokens'),
  head_dtype: z.enum(['model', 'float32'], 'model or float32'),
  engine_args: z.preprocess(
    (value) => (typeof value === 'string' ? words(value) : value),
    z.array(text, 'a list of arguments, or text with spaces between them'),
  ),
  ...givenSettings.shape,
  unsandboxed: z.boolean('true or false'),
  max_sandboxes: z.int('a whole number').min(1, 'at least 1'),
  sandboxes_per_second: z.number('a number').positive('more than 0'),
  warm_sandboxes: z.int('a whole number').min(0, 'at least 0'),
  wait_for_memory: z.boolean('true or false'),
}) satisfies z.ZodType<Record<Exclude<SettingKey, OptionalKey>, unknown>>;

type OptionalKey =
  | 'engine_gpus'
  | 'trainer_gpus'
  | 'launch'
  | 'group_address'
  | 'pack_tokens'
  | 'trainer_threads'
  | 'peak_tflops'
  | 'metrics_address'
  | 'engines_file'
  | 'engines_kubernetes'
  | 'engines_kubernetes_namespace'
  | 'engines_kubernetes_api'
  | 'python'
  | 'database_url'
  | 'temporal_address'
  | 'gateway_url'
  | 'temporal_ui_port'
  | 'admin_key'
  | 'read_key'
  | 'secret';

export type Deployment = z.output<typeof deployment>;

/** Returns the host of an address with a port. An IPv6 address keeps its brackets. */
export const hostOf = (address: string): string => address.slice(0, address.lastIndexOf(':'));

export const portOf = (address: string): number => Number(address.slice(address.lastIndexOf(':') + 1));

const words = (value: string): string[] => value.trim().split(/\s+/).filter(Boolean);

function withoutTrailingSlash(value: string): string {
  return value.replace(/\/+$/, '');
}

/** True when the deployment starts a vLLM of its own, because nothing tells it of other engines. */
export const hasOwnEngine = ({
  engines,
  engines_file,
  engines_kubernetes,
}: Pick<Deployment, 'engines' | 'engines_file' | 'engines_kubernetes'>): boolean =>
  engines.length === 0 && engines_file === undefined && engines_kubernetes === undefined;
