import type { Database } from '../../store/database.ts';
import { recordOutput, type Output } from '../../store/queries/outputs.ts';
import { recordDisk } from '../../store/queries/record-disk.ts';
import { egressText, type EgressRow } from '../sandbox/egress/egress-log.ts';

type Printed = Omit<Output, 'program'> & {
  trialId: string;
  program: 'agent' | 'verifier';
  /** What it asked of its egress proxy. */
  egress?: EgressRow[];
};

/** Keeps what a program of a trial printed, and what its egress proxy logged. A trial does not fail because its output cannot be kept. */
export async function keepOutput(db: Database, { egress = [], ...printed }: Printed): Promise<void> {
  const { trialId, attempt, program, stdout, stderr } = printed;
  await keep(db, { trialId, attempt, program, stdout, stderr });
  if (egress.length > 0)
    await keep(db, { trialId, attempt, program: `${program} network`, stdout: egressText(egress), stderr: '' });
}

/** Keeps how much disk the agent's sandbox used. A trial does not fail because that cannot be kept. */
export async function keepDisk(
  db: Database,
  { trialId, attempt, diskBytes }: { trialId: string; attempt: number; diskBytes: number | null },
): Promise<void> {
  if (diskBytes === null) return;
  await recordDisk(db, { trialId, attempt, diskBytes }).catch((error: unknown) =>
    console.warn(`WARNING: the disk that trial ${trialId} used could not be kept: ${String(error)}`),
  );
}

async function keep(db: Database, output: Output & { trialId: string }): Promise<void> {
  await recordOutput(db, output).catch((error: unknown) => {
    // Drizzle's own message has the whole output.
    const cause = error instanceof Error ? (error.cause ?? error) : error;
    console.warn(
      `WARNING: the output of the ${output.program} of trial ${output.trialId} could not be kept: ${String(cause)}`,
    );
  });
}
