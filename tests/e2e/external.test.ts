import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { probePython, pythonCandidates } from '../../activities/sandbox/sandbox-python.ts';
import { cancelRun } from '../../cli/run/cancel-run.ts';
import { resumeRun } from '../../cli/run/resume-run.ts';
import { Run, RunEnded, type Trial } from '../../clients/typescript/run.ts';
import { attemptKey, runKey } from '../../core/keys.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { claimGroup } from '../../store/queries/claim-group.ts';
import { readCalls } from '../../store/queries/read-calls.ts';
import { attempts, groups, runs, trials } from '../../store/schema.ts';
import { externalRuns } from '../support/harness/external-runs.ts';
import { ASK, SECRET, useGateway } from '../support/harness/gateways.ts';
import { until } from '../support/harness/until.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';

const environment = useTemporal();
const gateway = useGateway();
const { withExternalRun, publish, accessTo, readTrials } = externalRuns(environment, gateway);

const runOf = (runId: string) =>
  new Run(runId, { baseUrl: gateway.gateway.url, key: runKey(SECRET, runId), retryMs: 20_000 });

/** Claims a group and returns its trials without ending them. */
async function claim(runId: string, task = 't') {
  const claimed = await until(() => claimGroup(gateway.db, { runId, task, claim: crypto.randomUUID() }));
  if (!claimed) throw new Error('there is no group');
  return claimed;
}

const report = (runId: string, trialId: string, body: unknown, key = runKey(SECRET, runId)) =>
  gateway.post(`/runs/${runId}/trials/${trialId}/reward`, key, body);

const ask = (trial: Trial) =>
  fetch(`${trial.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${trial.apiKey}` },
    body: JSON.stringify(ASK),
  });

const reportAll = async (claimed: Trial[]) =>
  void (await Promise.all(claimed.map((trial) => trial.report(trial.index))));

test('a program outside claims the groups of a run, runs its agents against the gateway, and its rewards are those of the trials', async () => {
  await withExternalRun({ iterations: 2 }, async (runId, ended, world) => {
    const run = runOf(runId);
    for (const [version, task] of ['first', 'second'].entries())
      await run.group(task, async (claimed) => {
        expect(claimed).toHaveLength(2);
        await publish(runId, version);
        for (const trial of claimed) {
          expect((await ask(trial)).status).toBe(200);
          expect(await trial.report(trial.index === 0 ? -2.5 : { passed: 1, short: 0.25 })).toBe(true);
        }
      });
    await ended();
    await expect(run.group('third', async () => {})).rejects.toThrow(RunEnded);
    expect(world.log.filter((entry) => entry.startsWith('train'))).toEqual(['train 1', 'train 2']);
    const all = await readTrials(runId);
    expect(all.map(({ task, outcome, rewards }) => [task, outcome, rewards])).toEqual(
      ['first', 'second'].flatMap((task) => [
        [task, 'scored', { reward: -2.5 }],
        [task, 'scored', { passed: 1, short: 0.25 }],
      ]),
    );
    const [first] = all;
    expect(await readCalls(gateway.db, { trialId: first?.id ?? '', attempt: 1 })).toHaveLength(1);
  });
});

test('the Python client claims groups, discards what has no reward, and learns that the run has ended', async () => {
  const pythons = await Promise.all(pythonCandidates().map(probePython));
  const python = pythons.find((each) => each !== null);
  if (!python) throw new Error('no Python 3.9 or newer was found');
  await withExternalRun({ iterations: 1, group_size: 3 }, async (runId) => {
    const { stdout } = await promisify(execFile)(python.executable, [join(REPOSITORY, 'clients/python/use_a_run.py')], {
      env: accessTo(runId),
    });
    expect(stdout.trim()).toBe('completed');
    expect(await readTrials(runId)).toMatchObject([
      { outcome: 'scored', rewards: { reward: 1 } },
      { outcome: 'scored', rewards: { exact: 0.5, short: 2 } },
      { outcome: 'cancelled', rewards: null, reason: 'the program stopped: ValueError: the agent broke' },
    ]);
  });
});

test('a report that is wrong, late, for another trial or with an agent’s key is refused and changes nothing', async () => {
  await withExternalRun({}, async (runId, ended) => {
    const { groupId, trials: claimed } = await claim(runId);
    const [first, second] = claimed.map(({ trialId }) => trialId);
    if (!first || !second) throw new Error('the group has too few trials');
    const refused: [unknown, number, string?][] = [
      [{ attempt: 1, reward: 'high' }, 400],
      [{ attempt: 1, reward: 1e39 }, 400],
      [{ attempt: 1, reward: {} }, 400],
      [{ attempt: 1 }, 400],
      [{ attempt: 1, reward: 1, other: 1 }, 400],
      [{ attempt: 2, reward: 1 }, 409],
      [{ attempt: 1, reward: 1 }, 401, attemptKey(SECRET, first, 1)],
      [{ attempt: 1, reward: 1 }, 401, runKey(SECRET, 'another-run')],
      [{ attempt: 1, reward: 1 }, 401, ''],
    ];
    for (const [body, status, key] of refused)
      expect([body, (await report(runId, first, body, key)).status]).toEqual([body, status]);
    expect((await report(runId, 'no-such-trial', { attempt: 1, reward: 1 })).status).toBe(404);
    expect((await report('another-run', first, { attempt: 1, reward: 1 })).status).toBe(404);
    expect((await gateway.post(`/runs/${runId}/groups`, attemptKey(SECRET, first, 1), {})).status).toBe(401);
    expect((await readTrials(runId)).map(({ outcome }) => outcome)).toEqual([null, null]);

    for (const _ of [1, 2])
      expect(await (await report(runId, first, { attempt: 1, reward: 0.5 })).json()).toEqual({
        trial_id: first,
        attempt: 1,
        outcome: 'scored',
        rewards: { reward: 0.5 },
      });
    expect((await report(runId, first, { attempt: 1, reward: 0.75 })).status).toBe(409);
    expect((await report(runId, second, { attempt: 1, reward: 1 })).status).toBe(200);
    await ended();
    expect((await readTrials(runId)).map(({ rewards }) => rewards)).toEqual([{ reward: 0.5 }, { reward: 1 }]);
    expect(await gateway.db.select().from(groups).where(eq(groups.id, groupId))).toMatchObject([{ task: 't' }]);
  });
});

test('a claim whose reply was lost gets the same group when it is made again, and another claim gets none', async () => {
  await withExternalRun({}, async (runId, ended) => {
    const name = crypto.randomUUID();
    const again = async () => claimGroup(gateway.db, { runId, task: 't', claim: name });
    const first = await until(again);
    expect(await again()).toEqual(first);
    expect(await claimGroup(gateway.db, { runId, task: 't', claim: crypto.randomUUID() })).toBeNull();
    for (const { trialId } of first?.trials ?? [])
      expect((await report(runId, trialId, { attempt: 1, reward: 1 })).status).toBe(200);
    await ended();
  });
});

test('a group’s workflow that was lost goes on with the attempts that a program has claimed', async () => {
  await withExternalRun({}, async (runId, ended) => {
    const { groupId, trials: claimed } = await claim(runId);
    await environment.client.workflow.getHandle(groupId).terminate('lost');
    for (const { trialId } of claimed)
      expect((await report(runId, trialId, { attempt: 1, reward: 1 })).status).toBe(200);
    await ended();
    const all = await gateway.db
      .select()
      .from(attempts)
      .innerJoin(trials, eq(trials.id, attempts.trialId))
      .where(eq(trials.runId, runId));
    expect(all.map(({ attempts: { attempt, outcome } }) => [attempt, outcome])).toEqual([
      [1, 'scored'],
      [1, 'scored'],
    ]);
  });
});

test('a claimed trial without a reward at its deadline is not trained on, and the run gives the program another group', async () => {
  await withExternalRun({ deadlines: { trial: 1 } }, async (runId, ended) => {
    const { groupId } = await claim(runId);
    expect(await environment.client.workflow.getHandle(groupId).result()).toEqual(['cancelled', 'cancelled']);
    await runOf(runId).group('another', reportAll);
    await ended();
    const reason = 'the program reported no reward within the trial’s time';
    expect(await readTrials(runId)).toMatchObject([
      { outcome: 'cancelled', reason },
      { outcome: 'cancelled', reason },
      { outcome: 'scored', task: 'another' },
      { outcome: 'scored', task: 'another' },
    ]);
  });
});

test('a run whose groups no program claims is blocked with the reason, and after a resume they can be claimed for any task', async () => {
  await withExternalRun({ deadlines: { iteration: 3 }, groups_per_iteration: 2 }, async (runId, ended) => {
    const { db } = gateway;
    const readRun = async () => (await db.select().from(runs).where(eq(runs.id, runId)))[0];
    await until(async () => (await readRun())?.status === 'blocked');
    expect((await readRun())?.reason).toContain('no program claimed its group in time: is your program running?');
    const asked = await gateway.post(`/runs/${runId}/groups`, runKey(SECRET, runId), { task: 't', claim: 'c' });
    expect(await asked.json()).toMatchObject({ run: 'blocked', group: null });

    const handle = environment.client.workflow.getHandle(runId);
    await handle.executeUpdate('configure', { args: [{ deadlines: { iteration: 600 } }] });
    await resumeRun({ client: environment.client, db }, runId, { retryFailed: true });
    await runOf(runId).group('first', reportAll);
    await runOf(runId).group('second', reportAll);
    await ended();
    // Either group may be offered first.
    const found = (await readTrials(runId)).map(({ task, attempt, outcome }) => `${task} ${attempt} ${outcome}`);
    expect(found.toSorted()).toEqual(['first', 'first', 'second', 'second'].map((task) => `${task} 2 scored`));
  });
});

test('a group that a cancellation cut goes on with the rewards that it has, and one without rewards can be claimed again', async () => {
  await withExternalRun({ groups_per_iteration: 2 }, async (runId, ended) => {
    const [half, none] = [await claim(runId, 'half'), await claim(runId, 'none')];
    const [first] = half.trials;
    expect((await report(runId, first?.trialId ?? '', { attempt: 1, reward: 1 })).status).toBe(200);
    const connected = { client: environment.client, db: gateway.db };
    await cancelRun(connected, runId);
    expect((await report(runId, none.trials[0]?.trialId ?? '', { attempt: 1, reward: 1 })).status).toBe(409);
    await resumeRun(connected, runId);
    const run = runOf(runId);
    const claimedAgain: string[] = [];
    const work = async () => {
      for (let i = 0; ; i++)
        await run.group(`again ${i}`, async (claimed) => {
          claimedAgain.push(claimed[0]?.id ?? '');
          await reportAll(claimed);
        });
    };
    await expect(work()).rejects.toThrow(RunEnded);
    await ended().catch(() => {});
    expect(claimedAgain).toContain(none.trials[0]?.trialId);
    expect(claimedAgain).not.toContain(first?.trialId);
    const rows = await readTrials(runId);
    expect(rows.filter(({ groupId }) => groupId === half.groupId).map(({ outcome }) => outcome)).toEqual([
      'scored',
      'cancelled',
    ]);
  });
});

test('only a run with external rollouts has groups to claim, and a reward that is not finite is refused before it is sent', async () => {
  await gateway.db.insert(runs).values({ id: 'inside', config: { rollouts: 'sandboxes' } });
  await expect(runOf('inside').group('t', async () => {})).rejects.toThrow('runs its agents itself');
  await withExternalRun({}, async (runId) => {
    await runOf(runId).group('t', async (claimed) => {
      await expect(claimed[0]?.report(Number.NaN)).rejects.toThrow('reward: a reward is a finite number, found NaN');
      await reportAll(claimed);
    });
  });
});
