import type { Capabilities } from '../../activities/sandbox/backend.ts';
import { openBackend } from '../../activities/sandbox/backends.ts';
import { SANDBOX_KINDS, type SandboxKind } from '../../core/run-config/sandbox.ts';
import { table } from '../show/table.ts';

export type KindHere = {
  kind: SandboxKind;
  /** Null when it does not work on this machine. */
  capabilities: Capabilities | null;
  /** What it gives here, or why it does not work. */
  statement: string;
};

export function listKinds(): Promise<KindHere[]> {
  return Promise.all(
    SANDBOX_KINDS.map(async (kind) => {
      try {
        const { capabilities, statement } = await openBackend({ kind });
        return { kind, capabilities, statement };
      } catch (error) {
        return { kind, capabilities: null, statement: error instanceof Error ? error.message : String(error) };
      }
    }),
  );
}

export function kindsTable(kinds: readonly KindHere[]): string {
  const yes = (given: boolean | undefined): string => (given === undefined ? '' : given ? 'yes' : 'no');
  const rows = kinds.map(({ kind, capabilities }) => [
    kind,
    capabilities === null ? 'no' : 'yes',
    capabilities?.networks.join(', ') ?? '',
    yes(capabilities?.images),
    Object.entries(capabilities?.kernelLimits ?? {})
      .filter(([, isHeld]) => isHeld)
      .map(([name]) => name)
      .join(', '),
  ]);
  const shown = table(['kind', 'works here', 'networks', 'images', 'limits held by the kernel'], rows);
  return [shown, '', ...kinds.map(({ kind, statement }) => `${kind}: ${statement}`)].join('\n');
}
