import { asc, eq, sql } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import type { Transaction } from '../../store/queries/transaction.ts';
import { TrialgateError } from '../../core/errors.ts';
import { policyVersions, rows, runs } from '../../store/schema.ts';
import { weightVersionOf } from '../../core/weight-version.ts';
import { hasCheckpoint, isStatePruned, linkCheckpoint } from './link-checkpoint.ts';
import { missingCheckpoint } from './missing-checkpoint.ts';
import { readRun } from './read-run.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';

export type Fork = {
  runId: string;
  config: RunConfig;
  from: { runId: string; version: number };
  /** `{run}/{iteration}.{take}` */
  rescores?: string;
  /** Writes more rows in the same transaction. */
  also?: (tx: Transaction) => Promise<void>;
};

/**
 * Opens a run whose version 0 is a policy version of another run, with its optimizer's state.
 * @throws TrialgateError `bad_input` when the run exists, or when there is no such version, checkpoint or state; then nothing is written
 */
export async function forkBase(db: Database, { runId, config, from, rescores, also }: Fork): Promise<void> {
  const parent = await requireForkable(db, from);
  const exists = new TrialgateError('bad_input', `run ${runId} exists: choose another --run`);
  if ((await db.select({ id: runs.id }).from(runs).where(eq(runs.id, runId))).length > 0) throw exists;
  requireSameAdapter(await readRun(db, from.runId), config, from);
  const checkpoint = await linkCheckpoint(parent.checkpoint, runId);
  const { checkpointSha256, canary } = parent;
  await db.transaction(async (tx) => {
    const row = { id: runId, config, forkedFrom: weightVersionOf(from.runId, from.version), rescores };
    if ((await tx.insert(runs).values(row).onConflictDoNothing().returning()).length === 0) throw exists;
    await tx
      .insert(policyVersions)
      .values({ runId, version: 0, stepKey: 'base', checkpoint, checkpointSha256, canary });
    // The fork's tasks are the same, also where their files have changed since.
    await tx.execute(
      sql`insert into ${rows} (run_id, source, index, data, agent) select ${runId}, source, index, data, agent from ${rows} where run_id = ${from.runId}`,
    );
    await also?.(tx);
  });
}

/**
 * Returns the version that a fork or a rescoring begins from.
 * @throws TrialgateError `bad_input` when there is no such version, or its checkpoint or trainer's state is not there
 */
export async function requireForkable(db: Database, from: Fork['from']): Promise<Version> {
  const versions = await db
    .select()
    .from(policyVersions)
    .where(eq(policyVersions.runId, from.runId))
    .orderBy(asc(policyVersions.version));
  const parent = versions.find(({ version }) => version === from.version);
  if (!parent || !(await canBeForked(parent))) throw await refusal(from, versions);
  return parent;
}

/** @throws TrialgateError `bad_input` when a fork has other LoRA settings than the version that it goes on with */
function requireSameAdapter(parent: RunConfig, config: RunConfig, from: Fork['from']): void {
  const of = ({ lora_rank, lora_alpha, target_modules }: RunConfig) =>
    lora_rank === 0 ? 'lora_rank 0' : JSON.stringify({ lora_rank, lora_alpha, target_modules });
  if (of(parent) === of(config)) return;
  const version = weightVersionOf(from.runId, from.version);
  throw new TrialgateError(
    'bad_input',
    `a fork goes on with its parent's adapter: ${version} has ${of(parent)}, and the fork asks for ${of(config)}. Leave these settings, or export the version (npx trialgate export ${version} FOLDER) and name the folder as the \`model\` of a new run`,
  );
}

type Version = typeof policyVersions.$inferSelect;

const canBeForked = async ({ checkpoint }: Version): Promise<boolean> =>
  (await hasCheckpoint(checkpoint)) && !(await isStatePruned(checkpoint));

async function refusal(from: Fork['from'], versions: Version[]): Promise<TrialgateError> {
  const found = await Promise.all(versions.map(async (each) => ((await canBeForked(each)) ? [each.version] : [])));
  const there = found.flat().join(', ') || 'none';
  const known = versions.find(({ version }) => version === from.version);
  if (known && (await hasCheckpoint(known.checkpoint))) {
    const name = weightVersionOf(from.runId, from.version);
    return new TrialgateError(
      'bad_input',
      `a fork or a rescoring of ${name} would go on with its trainer's state, which was pruned: the run keeps only that of its newest version (\`keep_trainer_state: all\` keeps all). Versions with a state, which can be forked and whose iterations can be rescored: ${there}. "npx trialgate export ${name} FOLDER" writes a folder that can be the \`model\` of a new run, which begins with these weights and a new optimizer`,
    );
  }
  const what = known ? missingCheckpoint(known) : `run ${from.runId} has no policy version ${from.version}`;
  return new TrialgateError('bad_input', `${what}; there are ${there}`);
}
