import { expect, test } from 'vitest';
import { rawRequest, rawText } from '../../../tests/support/harness/raw-request.ts';
import { ASK, useSharedGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway({ settings: { compat: 'verl' } });
/** The requests that a gateway may send to an engine: its model's routes, and questions about it. */
const MAY_ASK =
  /^(POST \/v1\/(chat\/completions|completions)(\/(render|derender))?|POST \/inference\/v1\/generate|GET \/(health|metrics|weight_info|v1\/models))$/;
const CONTROL = [
  'pause',
  'resume',
  'collective_rpc',
  'update_weight_version',
  'reset_prefix_cache',
  'sleep',
  'v1/load_lora_adapter',
];
const WAYS = [
  (id: string, to: string) => `/${id}/v1/../../${to}`,
  (id: string, to: string) => `/${id}/v1/../${to}`,
  (id: string, to: string) => `/${id}/v1/%2e%2e/%2e%2e/${to}`,
  (id: string, to: string) => `/${id}/v1/%252e%252e/%252e%252e/${to}`,
  (id: string, to: string) => `/${id}/v1/..%2f..%2f${to}`,
  (id: string, to: string) => `/${id}/v1/..%252f..%252f${to}`,
  (id: string, to: string) => `/${id}/v1/..\\..\\${to}`,
  (id: string, to: string) => `/${id}/v1/..%5c..%5c${to}`,
  (id: string, to: string) => `/${id}/v1/chat/completions/../../../../${to}`,
  (id: string, to: string) => `/${id}/v1/chat/completions%2f..%2f..%2f..%2f..%2f${to}`,
  (id: string, to: string) => `/${id}/v1/chat/completions;/../${to}`,
  (id: string, to: string) => `/${id}/v1/chat/completions?/../../${to}`,
  (id: string, to: string) => `/${id}/v1/chat/completions#/../../${to}`,
  (id: string, to: string) => `/${id}/v1/chat/completions%00/${to}`,
  (id: string, to: string) => `//${id}/v1//${to}`,
  (id: string, to: string) => `/${id}//${to}`,
  (id: string, to: string) => `/${id}/${to}`,
  (id: string, to: string) => `/${id}/v1/${to}`,
  (_: string, to: string) => `/${to}`,
  (_: string, to: string) => `//${to}`,
  (_: string, to: string) => `/v1/${to}`,
  (_: string, to: string) => `/v1/chat/completions/..%2f..%2f..%2f${to}`,
  (_: string, to: string) => `http://engine/${to}`,
  (id: string, to: string) => `http://127.0.0.1/${id}/v1/../../${to}`,
  (_: string, to: string) => `*/${to}`,
];

test.each(WAYS.map((way) => [way('T', 'pause'), way] as const))(
  'a request with the path %s does not reach a control route of the engine',
  async (_, way) => {
    const trial = await gateway.trial();
    await trial.chat(ASK);
    for (const to of CONTROL) {
      for (const method of ['POST', 'GET']) {
        const { status } = await rawRequest(
          gateway.gateway.url,
          rawText({ method, target: way(trial.id, to), key: trial.key, body: JSON.stringify(ASK) }),
        );
        // Queries and fragments are not part of the path, so these are calls of the chat route.
        if (!/[?#]/.test(way('', ''))) expect([to, method, status >= 400]).toEqual([to, method, true]);
      }
    }
    expect(gateway.engine.asked.filter((asked) => !MAY_ASK.test(asked))).toEqual([]);
  },
);

test.each([
  'CONNECT',
  'TRACE',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
  'HEAD',
  'PROPFIND',
  'post',
  'POST /pause HTTP/1.1\r\nX:',
])('a request with the method %s does not reach a control route of the engine', async (method) => {
  const trial = await gateway.trial();
  for (const target of ['/pause', `/${trial.id}/v1/pause`, `/${trial.id}/v1/chat/completions`]) {
    const headers = ['X-HTTP-Method-Override: POST', 'X-Original-URL: /pause', 'X-Rewrite-URL: /pause'];
    await rawRequest(
      gateway.gateway.url,
      rawText({ method, target, key: trial.key, headers, body: JSON.stringify(ASK) }),
    );
  }
  expect(gateway.engine.asked.filter((asked) => !MAY_ASK.test(asked))).toEqual([]);
  expect(await trial.calls()).toEqual([]);
});

test('a request that hides a second request in its body gets 400, and neither reaches the engine', async () => {
  const trial = await gateway.trial();
  const hidden = 'POST /pause HTTP/1.1\r\nHost: engine\r\nContent-Length: 0\r\n\r\n';
  const head = `POST /${trial.id}/v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer ${trial.key}\r\n`;
  for (const framing of [
    'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n',
    'Transfer-Encoding: chunked, identity\r\n',
    'Transfer-Encoding : chunked\r\n',
    'Content-Length: 4\r\nContent-Length: 5\r\n',
  ]) {
    const { status } = await rawRequest(gateway.gateway.url, `${head}${framing}\r\n0\r\n\r\n${hidden}`);
    expect([framing, status]).toEqual([framing, 400]);
  }
  expect(gateway.engine.asked.filter((asked) => !MAY_ASK.test(asked))).toEqual([]);
});
