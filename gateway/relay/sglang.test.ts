import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { replicas } from '../../store/schema.ts';
import { ADMIN_KEY, ASK, readStream } from '../../tests/support/harness/gateways.ts';
import { SglangEngine } from '../../tests/support/fakes/sglang/sglang-engine.ts';
import { TestWorker } from '../../tests/support/harness/relay.ts';
import { useToyGateways } from '../../tests/support/harness/token-gateway.ts';

describe('an SGLang behind a relay worker', () => {
  const gateway = useToyGateways(() => new SglangEngine());
  let worker: TestWorker;
  beforeEach(async () => {
    await gateway.serve({}, { engines: ['relay'] });
    worker = new TestWorker({
      gateway: gateway.gateway.url,
      engine: gateway.toy.url,
      adminKey: ADMIN_KEY,
      id: 's1',
    });
    await expect.poll(() => gateway.replicaUrls()).toEqual(['relay:s1']);
  });
  afterEach(async () => {
    await worker.stop();
    await gateway.db.delete(replicas);
  });

  test('answers whole and streamed calls, which are recorded with the ids that it sampled and continue from them', async () => {
    const trial = await gateway.trial();
    gateway.toy.script.push({ text: 'one two' }, { text: 'three' });
    const first = await readStream(await trial.chat({ ...ASK, stream: true }));
    expect([first.done, first.broken]).toEqual([true, false]);
    const messages = [...ASK.messages, { role: 'assistant', content: 'one two' }, { role: 'user', content: 'on' }];
    expect((await trial.chat({ ...ASK, messages })).status).toBe(200);
    const calls = await trial.calls();
    expect(calls).toMatchObject([
      { status: 'completed', engine: 'relay:s1', untrainable: null },
      { status: 'completed', engine: 'relay:s1', untrainable: null, continuation: 'clean' },
    ]);
    expect(calls.map(({ completionTokenIds }) => [...(completionTokenIds ?? [])])).toEqual(
      gateway.toy.generated.map(({ completion }) => completion),
    );
  });

  test('is paused, gets weights and goes on through the gateway, and its other routes are refused', async () => {
    const at = '/relay/workers/s1';
    const post = (path: string, body: unknown = {}) => gateway.admin('POST', `${at}${path}`, body);
    expect((await post('/pause_generation', { mode: 'retract' })).status).toBe(200);
    expect((await gateway.admin('GET', `${at}/ready`)).status).toBe(503);
    expect((await post('/update_weights_from_disk', { model_path: '/v2', flush_cache: true })).status).toBe(200);
    expect((await post('/update_weight_version', { new_version: 'r@2', abort_all_requests: false })).status).toBe(200);
    expect((await post('/continue_generation')).status).toBe(200);
    expect(await (await gateway.admin('GET', `${at}/model_info`)).json()).toMatchObject({
      model_path: '/v2',
      weight_version: 'r@2',
    });
    expect(await (await post('/weights_checker', { action: 'checksum' })).json()).toMatchObject({ success: true });
    for (const refused of [
      await post('/weights_checker', { action: 'reset_tensors' }),
      await post('/abort_request', { abort_all: true }),
      await post('/flush_cache'),
      await gateway.admin('GET', `${at}/get_model_info`),
    ])
      expect([refused.status, await refused.text()]).toEqual([403, expect.stringContaining('not_relayed')]);
  });
});
