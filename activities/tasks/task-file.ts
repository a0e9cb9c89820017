import { posix } from 'node:path';
import { z } from 'zod';
import type { TaskEnvironment } from '../../core/task.ts';
import { isPlainImage, PLAIN_IMAGES } from './plain-dockerfile.ts';
import { NEEDS_CONTAINER } from './needs-container.ts';

const seconds = z.number().positive();
const count = z.number().positive();

/** A key whose value changes nothing in Trialgate. */
const anything = z.unknown().optional();

/** A key whose effect no sandbox of this version gives. A value that asks for nothing, such as an empty list or 0, is allowed. */
const refused = (what: (value: unknown) => string, needs = NEEDS_CONTAINER) =>
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
    message: `the task wants a user of the image: a sandbox has one user of its own, and another ${NEEDS_CONTAINER}`,
  });

const variables = z.record(
  z.string(),
  z.string().refine((text) => !/\$\{\w+(:-[^}]*)?\}/.test(text), {
    message: 'the task wants a variable of this machine, and no task gets one: write the value itself',
  }),
);

const network = {
  network_mode: z
    .enum(['no-network', 'public', 'allowlist'])
    .optional()
    .refine((mode) => mode !== 'allowlist', {
      message: `the task wants a network of some hosts alone: that ${NEEDS_CONTAINER}`,
    }),
  allowed_hosts: refused(() => 'a network of some hosts alone'),
};

const environment = z
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
    /** Nothing is built. */
    build_timeout_sec: seconds.optional(),
    docker_image: z
      .string()
      .optional()
      .refine((image) => image === undefined || isPlainImage(image), {
        error: ({ input }) =>
          `the task wants the image ${JSON.stringify(input)}: one other than ${PLAIN_IMAGES} ${NEEDS_CONTAINER}`,
      }),
    workdir: z
      .string()
      .optional()
      .refine((folder) => folder === undefined || posix.resolve('/app', folder) === '/app', {
        error: ({ input }) =>
          `the task wants to start in ${JSON.stringify(input)}: a work folder other than /app ${NEEDS_CONTAINER}`,
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
        message: `the task wants ${JSON.stringify(source)} to be kept: the tests get a copy of /app, and more ${NEEDS_CONTAINER}`,
      });
  });

/** `task.toml` in Harbor's format, schema 1. Every key of Harbor is here: it is honoured, refused with a sentence, or changes nothing. */
export const taskFile = z
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
    steps: refused(
      (steps) => `to be done in steps (${namesOf(steps)})`,
      'is not possible in this version, whatever the sandbox: make a task of each step',
    ),
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
            message: `the task wants its tests beside what the agent left running: that ${NEEDS_CONTAINER}; if they need only the files in /app, delete this key`,
          }),
        environment: environment.optional(),
        collect: refused(() => 'commands between agent and tests'),
      })
      .prefault({}),
    environment: environment.prefault({}),
  })
  .superRefine(({ verifier, environment: agents }, { addIssue }) => {
    const [path, mode] =
      verifier.network_mode !== undefined
        ? [['verifier', 'network_mode'], verifier.network_mode]
        : verifier.environment
          ? networkOf(verifier.environment, ['verifier', 'environment'])
          : networkOf(agents, ['environment']);
    if (mode === 'public')
      addIssue({
        code: 'custom',
        path,
        message: `the task wants an open network for its tests: that ${NEEDS_CONTAINER}; if only the agent needs it, add \`network_mode = "no-network"\` to [verifier]`,
      });
  });

export type TaskFile = z.output<typeof taskFile>;

/** Returns what the task says about the agent's network. */
export const agentNetworkOf = ({ agent, environment: own }: TaskFile): 'public' | 'no-network' | null => {
  const mode = agent.network_mode ?? networkOf(own, [])[1];
  return mode === 'public' || mode === 'no-network' ? mode : null;
};

/** Returns true when the tests have an image of their own, if they have one at all. */
export const hasOwnTestImage = ({ verifier }: TaskFile): boolean =>
  verifier.environment_mode === 'separate' || verifier.environment !== undefined;

export const limitsOf = (found: z.output<typeof environment>): TaskEnvironment => ({
  cpus: found.cpus,
  memoryMb: found.memory_mb ?? found.memory ?? 2048,
  storageMb: found.storage_mb ?? found.storage ?? 10_240,
  env: found.env,
});

/** Returns the network of an environment, and the path of the key that says it. */
function networkOf(
  { network_mode, allow_internet }: z.output<typeof environment>,
  path: string[],
): [path: string[], mode: string | undefined] {
  if (network_mode !== undefined || allow_internet === undefined) return [[...path, 'network_mode'], network_mode];
  return [[...path, 'allow_internet'], allow_internet ? 'public' : 'no-network'];
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
