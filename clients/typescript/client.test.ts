import { expect, expectTypeOf, test } from 'vitest';
import type { z } from 'zod';
import type * as runSchemas from '../../gateway/http/openapi/run-schemas.ts';
import type { DeploymentReply } from '../../gateway/http/openapi/deployment-schemas.ts';
import type * as schemas from '../../gateway/http/openapi/schemas.ts';
import { OPERATIONS } from '../../gateway/http/openapi/operations.ts';
import { ADMIN_KEY, ASK, useGateway } from '../../tests/support/harness/gateways.ts';
import {
  TrialgateClient,
  type CallRequest,
  type Deployment,
  type DroppedWork,
  type EngineList,
  type GroupList,
  type IterationList,
  type RunDetails,
  type RunList,
  type RunStart,
  type RunVerb,
  type StartLine,
  type SearchResult,
  type Timeline,
  type Transcript,
  type VerbReply,
  type SessionEnd,
  type OpenedSession,
  type Opening,
  type RewardReply,
  type Page,
  type SampleLine,
  type Samples,
  type Session,
} from './client.ts';

const gateway = useGateway();
const client = () => new TrialgateClient({ baseUrl: gateway.gateway.url, adminKey: ADMIN_KEY });

test('the TypeScript client’s types and methods are those of the gateway’s API document', () => {
  expectTypeOf<Session>().toExtend<z.output<typeof schemas.session>>();
  expectTypeOf<z.output<typeof schemas.session>>().toExtend<Session>();
  expectTypeOf<Page>().toExtend<z.output<typeof schemas.page>>();
  expectTypeOf<z.output<typeof schemas.page>>().toExtend<Page>();
  expectTypeOf<Samples>().toExtend<z.output<typeof schemas.samples>>();
  expectTypeOf<z.output<typeof schemas.samples>>().toExtend<Samples>();
  expectTypeOf<SampleLine>().toExtend<z.output<typeof schemas.sampleLine>>();
  expectTypeOf<z.output<typeof schemas.sampleLine>>().toExtend<SampleLine>();
  expectTypeOf<OpenedSession>().toExtend<z.output<typeof schemas.opened>>();
  expectTypeOf<z.output<typeof schemas.opened>>().toExtend<OpenedSession>();
  expectTypeOf<Opening>().toExtend<z.input<typeof schemas.opening>>();
  expectTypeOf<z.input<typeof schemas.opening>>().toExtend<Opening>();
  expectTypeOf<RewardReply>().toEqualTypeOf<z.output<typeof schemas.reportedReply>>();
  expectTypeOf<SessionEnd<'completed'>>().toEqualTypeOf<z.output<ReturnType<typeof schemas.ended<'completed'>>>>();
  expectTypeOf<EngineList>().toEqualTypeOf<z.output<typeof schemas.engineList>>();
  expectTypeOf<Deployment>().toExtend<DeploymentReply>();
  expectTypeOf<DeploymentReply>().toExtend<Deployment>();
  expectTypeOf<RunList>().toExtend<runSchemas.RunList>();
  expectTypeOf<runSchemas.RunList>().toExtend<RunList>();
  expectTypeOf<RunDetails>().toExtend<runSchemas.RunDetails>();
  expectTypeOf<runSchemas.RunDetails>().toExtend<RunDetails>();
  expectTypeOf<RunVerb>().toExtend<runSchemas.RunVerb>();
  expectTypeOf<runSchemas.RunVerb>().toExtend<RunVerb>();
  expectTypeOf<RunStart>().toExtend<runSchemas.RunStart>();
  expectTypeOf<runSchemas.RunStart>().toExtend<RunStart>();
  expectTypeOf<StartLine>().toExtend<runSchemas.StartLine>();
  expectTypeOf<runSchemas.StartLine>().toExtend<StartLine>();
  expectTypeOf<VerbReply>().toEqualTypeOf<runSchemas.VerbReply>();
  expectTypeOf<IterationList>().toExtend<runSchemas.IterationList>();
  expectTypeOf<runSchemas.IterationList>().toExtend<IterationList>();
  expectTypeOf<GroupList>().toExtend<runSchemas.GroupList>();
  expectTypeOf<runSchemas.GroupList>().toExtend<GroupList>();
  expectTypeOf<Timeline>().toExtend<runSchemas.Timeline>();
  expectTypeOf<runSchemas.Timeline>().toExtend<Timeline>();
  expectTypeOf<CallRequest>().toEqualTypeOf<runSchemas.CallRequest>();
  expectTypeOf<SearchResult>().toEqualTypeOf<runSchemas.SearchResult>();
  expectTypeOf<DroppedWork>().toExtend<runSchemas.DroppedWork>();
  expectTypeOf<runSchemas.DroppedWork>().toExtend<DroppedWork>();
  expectTypeOf<Transcript>().toExtend<runSchemas.Transcript>();
  expectTypeOf<runSchemas.Transcript>().toExtend<Transcript>();
  for (const { id } of OPERATIONS)
    expect(client()).toHaveProperty(id.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase()));
});

test('the TypeScript client takes a session from its opening to its deletion', async () => {
  const api = client();
  const { api_key, base_url, attempt } = await api.open('led', { budgets: { calls: 5 } });
  expect(await api.open('led')).toMatchObject({ api_key, attempt });
  await fetch(`${base_url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${api_key}` },
    body: JSON.stringify(ASK),
  });
  expect(await api.reward('led', 0.5, { key: api_key })).toEqual({
    session_id: 'led',
    attempt: 1,
    reported_reward: 0.5,
  });
  await api.complete('led');
  expect(await api.get('led')).toMatchObject({
    turns: [{ finish_reason: 'stop' }],
    completed: true,
    reported_reward: 0.5,
  });
  expect((await api.samples('led')).samples).toHaveLength(1);
  await expect(api.blob('led', '0'.repeat(64))).rejects.toMatchObject({ status: 404, code: 'blob_not_found' });
  expect((await all(api.export()))[0]).toEqual(await api.get('led'));
  expect((await all(api.exportSamples()))[0]).toMatchObject(await api.samples('led'));
  expect((await api.list({ status: 'completed' })).sessions).toMatchObject([
    { session_id: 'led', usage: { calls: 1, tokens: 5 } },
  ]);
  await api.delete('led');
  const others = await Promise.all([api.create(), api.create({ metadata: { suite: 'a' } })]);
  await api.batchDelete(others.map(({ session_id }) => session_id));
  expect(await all(api.all())).toEqual([]);
  await expect(api.get('led')).rejects.toMatchObject({ status: 404, code: 'session_not_found' });
  const url = 'http://127.0.0.1:9';
  expect((await api.changeEngine(url, 'join')).engines).toContainEqual(
    expect.objectContaining({ url, found_by: 'hand', state: 'serving' }),
  );
  expect(await api.changeEngine(url, 'leave')).toEqual(await api.engines());
  expect(await api.health()).toMatchObject({ status: 'ok' });
  expect(await api.metrics()).toContain('trialgate_calls_accepted_total 1');
});

async function all<T>(values: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const value of values) found.push(value);
  return found;
}
