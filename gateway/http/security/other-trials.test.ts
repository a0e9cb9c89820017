import { expect, test } from 'vitest';
import { completeTrial } from '../../../store/queries/complete-trial.ts';
import { sealAttempt } from '../../../store/queries/seal-attempt.ts';
import { ADMIN_KEY, ASK, useSharedGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway();
const OPEN_TO_ALL = /^\/(health|metrics|docs|openapi\.json|ui)/;

/** Returns every route that is served, so that a new one is tried too. A route without a trial in its path serves the key's trial. */
const routesFor = (id: string) =>
  gateway.gateway.routes
    .filter(({ method, path }) => method !== 'ALL' && !OPEN_TO_ALL.test(path))
    .map(({ method, path }) => ({
      method,
      path: path.replace(':trial', id).replace(/:call\{\.\+:\(\?:(\w+).*\}$/, 'policy:$1'),
      isOwn: !path.includes(':trial') && /^\/v1(beta)?\//.test(path),
    }));

async function send(method: string, path: string, key: string) {
  const body =
    method === 'GET' ? undefined : JSON.stringify(path.endsWith('/reward') ? { reward: 1 } : { ...ASK, prompt: 'x' });
  const reply = await fetch(`${gateway.gateway.url}${path}`, {
    method,
    headers: { authorization: `Bearer ${key}` },
    body,
  });
  return { status: reply.status, text: await reply.text() };
}

test('a trial’s key cannot read, write or end another trial, nor tell whether that one exists', async () => {
  const [thief, victim] = [await gateway.trial(), await gateway.trial()];
  await victim.chat({ ...ASK, messages: [{ role: 'user', content: 'the secret of the victim' }] });
  const before = await (await gateway.admin('GET', `/sessions/${victim.id}`)).json();
  const routes = routesFor(victim.id).filter(({ isOwn }) => !isOwn);
  expect(routes.length).toBeGreaterThan(9);
  for (const { method, path } of routes) {
    for (const key of [thief.key, '', 'verl-proxy', thief.key.replace(/-[^-]+$/, `-${victim.key.slice(-43, -1)}A`)]) {
      const { status, text } = await send(method, path, key);
      expect([method, path, status]).toEqual([method, path, 401]);
      const none = await send(method, path.replaceAll(victim.id, 'nobody'), key);
      expect([none.status, none.text.replaceAll('nobody', victim.id)]).toEqual([status, text]);
    }
  }
  expect(await (await gateway.admin('GET', `/sessions/${victim.id}`)).json()).toEqual(before);
});

test('concurrent calls of several trials are each recorded with their own trial', async () => {
  const trials = await Promise.all(Array.from({ length: 8 }, () => gateway.trial()));
  await Promise.all(
    trials.flatMap((trial) =>
      [1, 2, 3].map((i) =>
        trial
          .chat({ ...ASK, stream: i === 2, messages: [{ role: 'user', content: trial.id }] })
          .then((reply) => reply.text()),
      ),
    ),
  );
  for (const trial of trials) {
    const calls = await trial.calls();
    expect(calls.map((call) => call.request.messages)).toEqual(Array(3).fill([{ role: 'user', content: trial.id }]));
  }
});

test.each(['superseded', 'completed', 'sealed', 'deleted'])(
  'a trial’s key is refused on every route after its attempt was %s',
  async (how) => {
    const trial = await gateway.trial();
    if (how === 'superseded') await gateway.trial({ trialId: trial.id, attempt: 2 });
    if (how === 'completed') await completeTrial(gateway.db, { trialId: trial.id });
    if (how === 'sealed')
      await sealAttempt(gateway.db, { trialId: trial.id, attempt: 1, outcome: 'scored', rewards: { reward: 1 } });
    if (how === 'deleted') await gateway.admin('DELETE', `/sessions/${trial.id}`);
    for (const { method, path } of routesFor(trial.id)) {
      const { status } = await send(method, path, trial.key);
      expect([method, path, [401, 404, 409].includes(status)]).toEqual([method, path, true]);
    }
    expect(gateway.engine.seen).toEqual([]);
  },
);

test('the admin key cannot call a trial’s model', async () => {
  const trial = await gateway.trial();
  expect((await send('POST', `/${trial.id}/v1/chat/completions`, ADMIN_KEY)).status).toBe(401);
});
