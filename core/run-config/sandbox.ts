import { z } from 'zod';

/** The kinds of sandboxes. `activities/sandbox/backends.ts` has the program of each. */
export const SANDBOX_KINDS = ['bubblewrap', 'container', 'slurm', 'kubernetes'] as const;
export type SandboxKind = (typeof SANDBOX_KINDS)[number];
export const isSandboxKind = (named: string): named is SandboxKind => SANDBOX_KINDS.some((kind) => kind === named);

const container = z.strictObject({
  kind: z.literal('container'),
  /** The image of tasks that name none. Without it their sandboxes have this machine's programs, read-only. */
  image: z.string().min(1).optional(),
  /** The engine's name for another runtime, such as `runsc` (gVisor) or `kata`. */
  runtime: z.string().min(1).optional(),
});

const plainName = z.string().regex(/^\w[\w.,-]*$/, 'must be a name');

const slurm = z.strictObject({
  kind: z.literal('slurm'),
  /** Absent: the cluster's default. */
  partition: plainName.optional(),
  account: plainName.optional(),
  /** More options of `srun`, each in one word. */
  options: z
    .array(z.string().regex(/^--[a-z][a-z-]*(=.*)?$/, 'must be a long option of srun in one word, such as --qos=high'))
    .optional(),
});

const kubernetes = z.strictObject({
  kind: z.literal('kubernetes'),
  /** The context of the kubeconfig. Absent: its current one, or the cluster in which the worker itself runs. */
  context: z.string().min(1).optional(),
  /** Absent: that of the context. */
  namespace: z
    .string()
    .regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, 'must be the name of a namespace')
    .optional(),
  /** The image of tasks that name none. */
  image: z.string().min(1).optional(),
  /** The image of the container beside the program's, which carries its files and connections. */
  helper_image: z.string().min(1).optional(),
  /** The name of a RuntimeClass, such as `gvisor` or `kata`. */
  runtime_class: z.string().min(1).optional(),
  node_selector: z.record(z.string(), z.string()).optional(),
  /** Names of Secrets with the registry's password. */
  image_pull_secrets: z.array(z.string().min(1)).optional(),
  /** True: pods have user namespaces (`hostUsers: false`), where nodes support them. */
  user_namespaces: z.boolean().optional(),
  /** False: programs run although the cluster lets their pods reach its API. */
  require_network_policy: z.boolean().optional(),
});

const withSettings = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('bubblewrap') }),
  container,
  slurm,
  kubernetes,
]);

/** The sandbox of a run's agents or verifiers: a kind's name, or the kind with its settings. */
export const sandboxSetting = z
  .union([z.enum(SANDBOX_KINDS).transform((kind) => ({ kind })), withSettings])
  .pipe(withSettings);

export type SandboxSetting = z.output<typeof sandboxSetting>;

/** It has a shell, `tar` and Python. */
export const DEFAULT_POD_IMAGE = 'python:3.12-slim';

/** Returns the image of tasks that name none; null: their sandboxes have this machine's programs. */
export function imageWithout(setting: SandboxSetting): string | null {
  if (setting.kind === 'kubernetes') return setting.image ?? DEFAULT_POD_IMAGE;
  return setting.kind === 'container' ? (setting.image ?? null) : null;
}

/** True when sandboxes of this kind can have the image of a task. */
export const hasImages = ({ kind }: SandboxSetting): boolean => kind === 'container' || kind === 'kubernetes';
