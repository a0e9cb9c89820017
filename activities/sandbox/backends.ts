import type { SandboxKind, SandboxSetting } from '../../core/run-config/sandbox.ts';
import type { SandboxBackend } from './backend.ts';
import { bubblewrapBackend } from './bubblewrap-backend.ts';
import { isolation } from './isolation.ts';
import type { Owner } from './owner.ts';

type Open<K extends SandboxKind> = (
  setting: Extract<SandboxSetting, { kind: K }>,
  signal?: AbortSignal,
) => Promise<SandboxBackend>;

/** Opens each kind of sandbox with its settings. A new kind is a folder, its name and settings in `core/run-config/sandbox.ts`, and a line here. */
const KINDS: { [K in SandboxKind]: Open<K> } = {
  bubblewrap: async () => bubblewrapBackend(await isolation()),
  // Its client takes a tenth of a second to import.
  container: async (setting, signal) => (await import('./container/backend.ts')).containerBackend(setting, signal),
  kubernetes: async (setting, signal) =>
    (await import('./kubernetes/backend.ts')).kubernetesBackend(setting, { signal }),
  slurm: async (setting) => (await import('./slurm/backend.ts')).slurmBackend(setting),
};

/**
 * Returns a kind of sandbox to remove what a dead worker left. Nothing else is made for it.
 * @throws TrialgateError `missing_prerequisite` when this host cannot reach it
 */
export async function openToRemove({ kind, cluster }: Pick<Owner, 'kind' | 'cluster'>): Promise<SandboxBackend> {
  if (kind !== 'kubernetes') return openBackend({ kind });
  const { kubernetesBackend } = await import('./kubernetes/backend.ts');
  return kubernetesBackend({ kind, ...cluster }, { onlyRemoves: true });
}

/**
 * Returns the kind of sandbox that a setting names.
 * @throws TrialgateError `missing_prerequisite` when this host cannot run it
 */
export function openBackend(
  setting: SandboxSetting = { kind: 'bubblewrap' },
  signal?: AbortSignal,
): Promise<SandboxBackend> {
  switch (setting.kind) {
    case 'bubblewrap':
      return KINDS.bubblewrap(setting);
    case 'container':
      return KINDS.container(setting, signal);
    case 'slurm':
      return KINDS.slurm(setting);
    case 'kubernetes':
      return KINDS.kubernetes(setting, signal);
  }
}
