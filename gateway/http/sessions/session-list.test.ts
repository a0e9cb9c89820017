import { expect, test } from 'vitest';
import { openAttempt } from '../../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../../store/queries/seal-attempt.ts';
import { ASK, useSharedGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway();
type ListedSession = { session_id: string };
const idsOf = (sessions: ListedSession[]): string[] => sessions.map(({ session_id }) => session_id);
const list = async (query: string): Promise<{ sessions: ListedSession[]; next_cursor: string | null }> =>
  (await gateway.admin('GET', `/sessions?${query}`)).json();
const linesOf = async (query: string): Promise<ListedSession[]> => {
  const text = await (await gateway.admin('GET', `/sessions/export?${query}`)).text();
  return text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
};

test('the pages of the session list show every session once and leave out deleted ones', async () => {
  const ids = Array.from({ length: 120 }, (_, i) => `paged-${(i * 37) % 120}`);
  for (const trialId of ids)
    await openAttempt(gateway.db, { trialId, runId: 'paged', groupId: `paged/${Number(trialId.slice(6)) % 2}` });
  await gateway.admin('DELETE', '/sessions/paged-7');
  const left = ids.filter((id) => id !== 'paged-7');
  const seen: string[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const page = await list(`run_id=paged&limit=25${cursor && `&cursor=${cursor}`}`);
    seen.push(...idsOf(page.sessions));
    cursor = page.next_cursor;
  }
  expect(seen).toEqual(left);
  expect(idsOf(await linesOf('run_id=paged'))).toEqual(left);
  expect(idsOf(await linesOf(`run_id=paged&cursor=${left[70]}`))).toEqual(left.slice(71));
  expect(idsOf((await list('group_id=paged/1&limit=500')).sessions)).toHaveLength(59);
});

test('a filter of the session list shows only the sessions that match it', async () => {
  for (const trialId of ['done', 'open']) await openAttempt(gateway.db, { trialId, runId: 'kept' });
  await sealAttempt(gateway.db, { trialId: 'done', attempt: 1, outcome: 'scored', rewards: { reward: 1 } });
  expect(idsOf((await list('run_id=kept&outcome=scored')).sessions)).toEqual(['done']);
  expect(idsOf((await list('run_id=kept&status=created')).sessions)).toEqual(['open']);
  expect(await list('run_id=other')).toEqual({ sessions: [], next_cursor: null });
});

test('the sessions of an evaluation’s group are found by its id, which has an at sign', async () => {
  const groupId = 'first/eval@3.1/0';
  await openAttempt(gateway.db, { trialId: 'evaluated', runId: 'first', groupId });
  for (const text of [groupId, encodeURIComponent(groupId)]) {
    expect(idsOf((await list(`group_id=${text}`)).sessions)).toEqual(['evaluated']);
    expect(idsOf(await linesOf(`group_id=${text}`))).toEqual(['evaluated']);
  }
});

test.each([
  'limit=0',
  'limit=x',
  'limit=501',
  'outcome=good',
  'run_id=%00',
  'group_id=%00',
  'cursor=nobody',
  'cursor=%00',
  'page=2',
])('a bad query of the session list is refused with the name of its parameter: %s', async (query) => {
  const reply = await gateway.admin('GET', `/sessions?${query}`);
  expect([reply.status, (await reply.json()).error.message]).toEqual([
    400,
    expect.stringContaining(query.split('=')[0] ?? ''),
  ]);
});

test('an export of sessions breaks off with an error when the database fails', async () => {
  gateway.engine.weightVersion = 'cut@1';
  await gateway.givePool('cut', 'cut@1');
  for (let i = 0; i < 60; i++) await openAttempt(gateway.db, { trialId: `cut-${i}`, runId: 'cut' });
  const trial = await gateway.trial({ trialId: 'cut-long', runId: 'cut' });
  expect((await trial.chat(ASK)).status).toBe(200);
  const reply = await gateway.admin('GET', '/sessions/export?run_id=cut');
  const reader = reply.body?.getReader();
  await reader?.read();
  await gateway.db.execute('alter table calls rename to calls_away');
  try {
    await expect(async () => {
      while (!(await reader?.read())?.done);
    }).rejects.toThrow();
  } finally {
    await gateway.db.execute('alter table calls_away rename to calls');
  }
  expect(gateway.log.join()).toContain('an export broke off');
});
