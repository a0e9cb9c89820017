import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { and, asc, desc, eq, inArray, isNotNull, isNull, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import { z } from 'zod';
import { weightVersionOf } from '../../core/weight-version.ts';
import { auditRun } from '../../tests/support/oracles/audit-run.ts';
import type { Database } from '../../store/database.ts';
import { attempts, batches, calls, policyVersions, publications, trials } from '../../store/schema.ts';
import { markOf } from './answers.ts';
import type { EngineEntry } from '../../tests/support/fakes/chaos-engine-log.ts';
import { hasStragglers, SETTINGS, type Settings } from './settings.ts';

export type AuditInput = {
  db: Database;
  runId: string;
  iterations: number;
  settings: Settings;
  witnessed: string[];
  engine: EngineEntry[];
  restarted: boolean;
};

/** Checks invariants 1, 5, 6, 7 and 11 for a run that ended, in the store, the files, the engine's log and the replies of an agent outside. Returns the faults. */
export async function auditChaos(run: AuditInput): Promise<string[]> {
  const { db, runId, iterations, settings, restarted } = run;
  const found = await Promise.all([
    auditRun(db, runId, iterations, { restarted, stragglers: hasStragglers(settings) }),
    recordedBeforeAnswered(run),
    fencedAttempts(run),
    onlyTheVerifierGivesRewards(run),
    everyEffectOnce(run),
    onePoolOneWeightVersion(run),
  ]);
  return found.flat();
}

async function recordedBeforeAnswered({ db, witnessed }: AuditInput): Promise<string[]> {
  const rows = await db
    .select({ response: calls.response })
    .from(calls)
    .innerJoin(trials, eq(trials.id, calls.trialId))
    .where(and(eq(calls.status, 'completed'), isNull(trials.runId)));
  const recorded = new Set(rows.map(({ response }) => reply.parse(JSON.parse(String(response))).id));
  return witnessed
    .filter((id) => !recorded.has(id))
    .map((id) => `invariant 1: an agent saw reply ${id} end, and it is not recorded`);
}

async function fencedAttempts({ db, runId, settings }: AuditInput): Promise<string[]> {
  const ofRun = eq(trials.runId, runId);
  const next = alias(attempts, 'next');
  // A straggler may be cut while it waits for its next attempt, or by the run's end.
  const unlessCut = hasStragglers(settings)
    ? sql`not (${attempts.outcome} in ('infra_error', 'cancelled') and coalesce(${trials.outcome}, 'cancelled') = 'cancelled')`
    : undefined;
  const [orphans, overtaken, uncounted, open, unlike] = await Promise.all([
    db
      .select({ id: calls.id })
      .from(calls)
      .innerJoin(trials, eq(trials.id, calls.trialId))
      .leftJoin(attempts, and(eq(attempts.trialId, calls.trialId), eq(attempts.attempt, calls.attempt)))
      .where(and(ofRun, isNull(attempts.attempt))),
    db
      .select({ id: calls.id })
      .from(calls)
      .innerJoin(trials, eq(trials.id, calls.trialId))
      .innerJoin(next, and(eq(next.trialId, calls.trialId), eq(next.attempt, sql`${calls.attempt} + 1`)))
      .where(and(ofRun, eq(calls.status, 'completed'), sql`${calls.endedAt} > ${next.openedAt}`)),
    // The transaction that records a call also counts it.
    db
      .select({ id: trials.id })
      .from(trials)
      .where(
        and(
          ofRun,
          sql`${trials.recorded} <> (select count(*) from ${calls} c where c.trial_id = ${trials.id} and c.attempt = ${trials.attempt})`,
        ),
      ),
    db
      .select({ id: attempts.trialId })
      .from(attempts)
      .innerJoin(trials, eq(trials.id, attempts.trialId))
      .where(and(ofRun, isNull(attempts.endedAt))),
    db
      .select({ id: trials.id })
      .from(trials)
      .innerJoin(attempts, and(eq(attempts.trialId, trials.id), eq(attempts.attempt, trials.attempt)))
      .where(and(ofRun, sql`${attempts.outcome} is distinct from ${trials.outcome}`, unlessCut)),
  ]);
  return [
    ...orphans.map(({ id }) => `invariant 5: call ${id} is of an attempt that was never opened`),
    ...overtaken.map(({ id }) => `invariant 5: call ${id} was recorded after the next attempt was opened`),
    ...uncounted.map(({ id }) => `invariant 5: trial ${id} counts other calls than it has`),
    ...open.map(({ id }) => `invariant 5: an attempt of trial ${id} never ended`),
    ...unlike.map(({ id }) => `invariant 5: trial ${id} and its last attempt differ in their outcome`),
  ];
}

/** Checks every reward. Each is known, because the bundled agents and verifiers do not fail and each reply says whether it is right. */
async function onlyTheVerifierGivesRewards({ db, runId, settings }: AuditInput): Promise<string[]> {
  const rows = await db.select().from(trials).where(eq(trials.runId, runId));
  const ours = await db
    .select({ id: attempts.trialId })
    .from(attempts)
    .innerJoin(trials, eq(trials.id, attempts.trialId))
    .where(
      and(
        eq(trials.runId, runId),
        inArray(attempts.outcome, ['infra_error', 'cancelled']),
        eq(attempts.attempt, trials.attempt),
        isNotNull(trials.rewards),
      ),
    );
  const faults = ours.map(
    ({ id }) => `invariant 6: trial ${id} has a reward though its attempt failed for our reasons`,
  );
  for (const { id, outcome, reason, rewards, attempt } of rows) {
    if (hasStragglers(settings) && rewards === null && isCut({ outcome, reason })) continue;
    if (outcome !== 'scored') {
      faults.push(`invariant 6: trial ${id} ended as ${outcome}: ${reason}`);
      continue;
    }
    const [last] = await db
      .select({ response: calls.response })
      .from(calls)
      .where(and(eq(calls.trialId, id), eq(calls.attempt, attempt), eq(calls.status, 'completed')))
      .orderBy(desc(calls.seq))
      .limit(1);
    const mark = last ? markOf(String(last.response)) : null;
    const expected = mark === null ? 'none: its agent was never answered' : mark.right ? 1 : 0;
    if (rewards?.['reward'] !== expected)
      faults.push(`invariant 6: trial ${id} has the reward ${JSON.stringify(rewards)}, expected ${expected}`);
  }
  return faults;
}

/** Checks, beyond `auditRun`, that every file that a row names is complete on the disk, whatever was full or killed. */
async function everyEffectOnce({ db, runId }: AuditInput): Promise<string[]> {
  const faults: string[] = [];
  const files = await db.select().from(batches).where(eq(batches.runId, runId));
  for (const { path, sha256 } of files) {
    const found = readOrNull(path);
    if (found === null || createHash('sha256').update(found).digest('hex') !== sha256)
      faults.push(`invariant 7: batch ${path} is not what its row says`);
  }
  const [newest] = await db
    .select()
    .from(policyVersions)
    .where(eq(policyVersions.runId, runId))
    .orderBy(desc(policyVersions.version))
    .limit(1);
  const onDisk = manifest.safeParse(
    JSON.parse(String(newest && (readOrNull(join(newest.checkpoint, 'manifest.json')) ?? 'null'))),
  );
  if (!newest || !onDisk.success || onDisk.data.checkpoint_sha256 !== newest.checkpointSha256)
    faults.push(`invariant 7: the checkpoint of version ${newest?.version} is not what its row says`);
  for (const [file, sha256] of Object.entries(onDisk.data?.files ?? {})) {
    const content = readOrNull(join(newest?.checkpoint ?? '', file));
    if (content === null || createHash('sha256').update(content).digest('hex') !== sha256)
      faults.push(`invariant 7: ${newest?.checkpoint}/${file} is not what its manifest says`);
  }
  return faults;
}

/** Compares the engine's own log with the recorded calls. */
async function onePoolOneWeightVersion({ db, runId, settings, engine }: AuditInput): Promise<string[]> {
  const faults = engine.flatMap(({ fault }) => (fault === undefined ? [] : [`invariant 11: the engine: ${fault}`]));
  const sampled = Map.groupBy(
    engine.filter(({ serial }) => serial !== undefined),
    ({ serial }) => serial,
  );
  const rows = await db
    .select({
      id: calls.id,
      weightVersion: calls.weightVersion,
      version: calls.policyVersion,
      response: calls.response,
    })
    .from(calls)
    .innerJoin(trials, eq(trials.id, calls.trialId))
    .where(and(eq(trials.runId, runId), eq(calls.status, 'completed')))
    .orderBy(asc(calls.seq));
  for (const { id, weightVersion, version, response } of rows) {
    const entries = sampled.get(markOf(String(response))?.serial ?? '') ?? [];
    // The salt is the weight version at the call's start. With staleness the weights may change before the first token, whose weight version the call has.
    const atStart = Array.from({ length: 1 + (SETTINGS[settings]?.max_staleness ?? 0) }, (_, age) =>
      encodeURIComponent(weightVersionOf(runId, (version ?? -1) - age)),
    );
    const isAsSaid = entries.some(
      (each) => each.weightVersion === weightVersionOf(runId, version ?? -1) && atStart.includes(each.salt ?? ''),
    );
    if (!isAsSaid)
      faults.push(
        `invariant 11: call ${id} says version ${version} (${weightVersion} at its first token), its engine was ${entries.map((each) => `${each.weightVersion} (salt ${each.salt})`).join(', ') || 'not asked'}`,
      );
  }
  const unconfirmed = await db
    .select({ id: calls.id, version: calls.policyVersion })
    .from(calls)
    .innerJoin(trials, eq(trials.id, calls.trialId))
    .leftJoin(publications, and(eq(publications.runId, trials.runId), eq(publications.version, calls.policyVersion)))
    .where(and(eq(trials.runId, runId), eq(calls.status, 'completed'), isNull(publications.version)));
  return [
    ...faults,
    ...unconfirmed.map(
      ({ id, version }) => `invariant 11: call ${id} was sampled from version ${version}, which no replica confirmed`,
    ),
  ];
}

/** True for a straggler that its group or run did not wait for. One that the run's end cut has no outcome, so that a resume tries it again. */
const isCut = ({ outcome, reason }: { outcome: string | null; reason: string | null }): boolean =>
  outcome === null ||
  (outcome === 'cancelled' &&
    (reason === 'enough trials of the group had ended' || reason === 'older than the run allows'));

const reply = z.object({ id: z.string() });
const manifest = z.object({ checkpoint_sha256: z.string(), files: z.record(z.string(), z.string()) });

function readOrNull(file: string): Buffer | null {
  try {
    return readFileSync(file);
  } catch {
    return null;
  }
}
