import { posix } from 'node:path';
import { z } from 'zod';
import { hostRule } from '../../core/host-rules.ts';
import type { FolderTask, TaskEnvironment } from '../../core/task.ts';
import { repositoryUrl } from '../repositories/repository-url.ts';
import { isPlainImage, PLAIN_IMAGES } from './plain-dockerfile.ts';
import { NEEDS_CONTAINER, NOT_POSSIBLE } from './needs-container.ts';

const seconds = z.number().positive();
const count = z.number().positive();

/** A key whose value changes nothing in Trialgate. */
const anything = z.unknown().optional();

/** A key whose effect no sandbox of this version gives. A value that asks for nothing, such as an empty list or 0, is allowed. */
const refused = (what: (value: unknown) => string, needs = NOT_POSSIBLE) =>
  z
    .unknown()
    .optional()
    .superRefine((value, { addIssue }) => {
      if (asksForSomething(value))
        addIssue({ code: 'custom', message: `the task wants ${what(value)}: that ${needs}` });
    });

const asksForSomething = (value: unknown): boolean =>
  Array.isArray(value) ? value.length > 0 : ![undefined, false, 0, ''].some((nothing) => nothing === value);

const user = z
  .unknown()
  .optional()
  .refine((value) => value === undefined, {
    message: `the task wants a user of the image: a sandbox has one user of its own, and another ${NOT_POSSIBLE}`,
  });

const variables = z.record(
  z.string(),
  z.string().refine((text) => !/\$\{\w+(:-[^}]*)?\}/.test(text), {
    message: 'the task wants a variable of this machine, and no task gets one: write the value itself',
  }),
);

const network = {
  network_mode: z.enum(['no-network', 'public', 'allowlist']).optional(),
  allowed_hosts: z.array(hostRule).max(100).default([]),
};

const environmentFor = (hasImages: boolean) =>
  z
    .strictObject({
      cpus: count.default(1),
      memory_mb: count.optional(),
      storage_mb: count.optional(),
      /** The old names, with a unit. */
      memory: size().optional(),
      storage: size().optional(),
      env: variables.default({}),
      ...network,
      /** The old form of `network_mode`. */
      allow_internet: z.boolean().optional(),
      /** It counts where an image is built. */
      build_timeout_sec: seconds.optional(),
      docker_image: z
        .string()
        .optional()
        .refine((image) => image === undefined || hasImages || isPlainImage(image), {
          error: ({ input }) =>
            `the task wants the image ${JSON.stringify(input)}: one other than ${PLAIN_IMAGES} ${NEEDS_CONTAINER}`,
        }),
      workdir: z
        .string()
        .optional()
        .refine((folder) => folder === undefined || posix.resolve('/app', folder) === '/app', {
          error: ({ input }) =>
            `the task wants to start in ${JSON.stringify(input)}: a work folder other than /app ${NOT_POSSIBLE}`,
        }),
      os: z
        .string()
        .optional()
        .refine((os) => os === undefined || os.toLowerCase() === 'linux', {
          error: ({ input }) => `the task wants ${JSON.stringify(input)}: every sandbox of Trialgate runs Linux`,
        }),
      gpus: refused((gpus) => (gpus === 1 ? 'a GPU' : `${String(gpus)} GPUs`)),
      /** It says nothing without `gpus`. */
      gpu_types: anything,
      tpu: refused(() => 'a TPU'),
      mcp_servers: refused((servers) => `the MCP servers ${namesOf(servers)}`),
      skills_dir: refused((folder) => `the skills in ${JSON.stringify(folder)} of its image`),
      healthcheck: refused(() => 'a service whose health is checked'),
    })
    .superRefine(({ memory, memory_mb, storage, storage_mb }, { addIssue }) => {
      for (const [old, value, name, other] of [
        ['memory', memory, 'memory_mb', memory_mb],
        ['storage', storage, 'storage_mb', storage_mb],
      ] as const)
        if (value !== undefined && other !== undefined && value !== other)
          addIssue({ code: 'custom', path: [old], message: `\`${name}\` says another size: write only \`${name}\`` });
    });

const artifact = z
  .union([
    z.string().transform((source) => ({ source })),
    z.strictObject({
      source: z.string(),
      destination: anything,
      exclude: refused(() => 'tests that do not see some files of /app'),
      service: refused((service) => `files of the service ${JSON.stringify(service)}`).or(z.literal('main')),
    }),
  ])
  .superRefine(({ source }, { addIssue }) => {
    if (posix.relative('/app', posix.resolve('/app', source)).startsWith('..'))
      addIssue({
        code: 'custom',
        message: `the task wants ${JSON.stringify(source)} to be kept: the tests get a copy of /app, and more ${NOT_POSSIBLE}`,
      });
  });

/** Our own table, which Harbor ignores. */
const trialgate = z.strictObject({
  repository: z
    .strictObject({
      url: repositoryUrl,
      commit: z.string().regex(/^[0-9a-f]{40}$/, "expected the commit's whole id: 40 digits and letters from a to f"),
      path: z
        .string()
        .default('.')
        .refine((path) => isInside(path), { message: 'expected a folder within /app, such as "." or "repo"' })
        .transform((path) => posix.normalize(path).replace(/\/$/, '')),
      history: z.boolean().default(false),
    })
    .optional(),
});

const isInside = (path: string): boolean =>
  path !== '' &&
  !posix.isAbsolute(path) &&
  !path.includes('\0') &&
  !path.split('/').some((part) => part === '..' || part === '.git');

/**
 * `task.toml` in Harbor's format, schema 1. Every key of Harbor is here: it is honoured, refused with a sentence, or changes nothing.
 * `hasImages`: the task's sandboxes can have an image of its own.
 */
export const taskFileFor = (hasImages: boolean) => {
  const environment = environmentFor(hasImages);
  return z
    .strictObject({
      schema_version: version().optional(),
      /** The old name. */
      version: version().optional(),
      task: z
        .strictObject({
          name: z.string().min(1).optional(),
          version: anything,
          description: anything,
          authors: anything,
          keywords: anything,
        })
        .prefault({}),
      metadata: anything,
      source: anything,
      /** Nothing runs a solution. */
      solution: z.strictObject({ env: anything }).optional(),
      steps: refused((steps) => `to be done in steps (${namesOf(steps)})`, `${NOT_POSSIBLE}: make a task of each step`),
      /** They say nothing without `steps`. */
      multi_step_reward_strategy: anything,
      multi_step_reward_mode: anything,
      artifacts: z.array(artifact).default([]),
      agent: z.strictObject({ timeout_sec: seconds.default(600), user, ...network }).prefault({}),
      verifier: z
        .strictObject({
          timeout_sec: seconds.default(600),
          env: variables.default({}),
          user,
          ...network,
          environment_mode: z
            .enum(['separate', 'shared'])
            .optional()
            .refine((mode) => mode !== 'shared', {
              message: `the task wants its tests beside what the agent left running: that ${NOT_POSSIBLE}; if they need only the files in /app, delete this key`,
            }),
          environment: environment.optional(),
          collect: refused(() => 'commands between agent and tests'),
        })
        .prefault({}),
      environment: environment.prefault({}),
      trialgate: trialgate.prefault({}),
    })
    .superRefine((file, { addIssue }) => {
      for (const { path, of } of [...agentNetworks(file), ...verifierNetworks(file)])
        if (of.allowed_hosts.length > 0 && !['allowlist', undefined].includes(of.network_mode))
          addIssue({
            code: 'custom',
            path: [...path, 'allowed_hosts'],
            message: '`allowed_hosts` counts only with `network_mode = "allowlist"`',
          });
      const { path, network: verifier } = chosen(verifierNetworks(file));
      if (verifier === 'public')
        addIssue({
          code: 'custom',
          path,
          message: `the task wants an open network for its tests: that ${NOT_POSSIBLE}; if only the agent needs it, add \`network_mode = "no-network"\` to [verifier]`,
        });
    });
};

export type TaskFile = z.output<ReturnType<typeof taskFileFor>>;
type Environment = z.output<ReturnType<typeof environmentFor>>;

/** Returns what the task says about the agent's network. */
export const agentNetworkOf = (file: TaskFile): FolderTask['network'] => chosen(agentNetworks(file)).network;

/** Returns the hosts that the task's tests may reach. */
export function verifierHostsOf(file: TaskFile): string[] {
  const { network: verifier } = chosen(verifierNetworks(file));
  return Array.isArray(verifier) ? verifier : [];
}

/** Returns true when the tests have an image of their own, if they have one at all. */
export const hasOwnTestImage = ({ verifier }: TaskFile): boolean =>
  verifier.environment_mode === 'separate' || verifier.environment !== undefined;

export const limitsOf = (found: Environment): TaskEnvironment => ({
  cpus: found.cpus,
  memoryMb: found.memory_mb ?? found.memory ?? 2048,
  storageMb: found.storage_mb ?? found.storage ?? 10_240,
  env: found.env,
});

/** A section that may say a network. */
type Section = z.output<z.ZodObject<typeof network>> & { allow_internet?: boolean | undefined };
type Sections = { agent: Section; environment: Section; verifier: Section & { environment?: Section | undefined } };
type SaidNetwork = { path: string[]; of: Section };

/** Returns the sections that may say the agent's network. The first one that says something counts. */
const agentNetworks = ({ agent, environment: own }: Sections): SaidNetwork[] => [
  { path: ['agent'], of: agent },
  { path: ['environment'], of: own },
];

const verifierNetworks = ({ verifier, environment: agents }: Sections): SaidNetwork[] => [
  { path: ['verifier'], of: verifier },
  verifier.environment
    ? { path: ['verifier', 'environment'], of: verifier.environment }
    : { path: ['environment'], of: agents },
];

/** Returns the network that counts, and the path of the key that says it. A list without hosts opens nothing. */
function chosen(said: readonly SaidNetwork[]): { path: string[]; network: FolderTask['network'] } {
  for (const { path, of } of said) {
    const { network_mode: mode, allowed_hosts: hosts, allow_internet: isOpen } = of;
    if (mode === 'allowlist' || (mode === undefined && hosts.length > 0))
      return { path: [...path, 'allowed_hosts'], network: hosts.length > 0 ? hosts : 'no-network' };
    if (mode !== undefined) return { path: [...path, 'network_mode'], network: mode };
    if (isOpen !== undefined) return { path: [...path, 'allow_internet'], network: isOpen ? 'public' : 'no-network' };
  }
  return { path: [], network: null };
}

function namesOf(list: unknown): string {
  const named = z.array(z.looseObject({ name: z.string() })).safeParse(list);
  return named.success ? named.data.map(({ name }) => name).join(', ') : 'without names';
}

function version() {
  return z.string().regex(/^1(\.\d+)?$/, "this version of Trialgate reads Harbor's schema 1 (1.0, 1.1, …)");
}

/** A size such as `4G`, in MiB. */
function size() {
  return z
    .string()
    .regex(/^\s*\d+(\.\d+)?\s*[GMK]\s*$/i, 'a size is a number with G, M or K, such as "4G"')
    .transform((text) => Number.parseFloat(text) * { G: 1024, M: 1, K: 1 / 1024 }[unitOf(text)]);
}

function unitOf(text: string): 'G' | 'M' | 'K' {
  const unit = text.trim().at(-1)?.toUpperCase();
  return unit === 'G' || unit === 'K' ? unit : 'M';
}
