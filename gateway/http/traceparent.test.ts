import { expect, test } from 'vitest';
import { ASK, useSharedGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway();
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const VALID = `00-${TRACE}-${SPAN}-01`;

/** Asks with a header and returns what the record has of it. */
async function recorded(traceparent: string | null, more: object = {}): Promise<(string | null)[]> {
  const trial = await gateway.trial();
  const headers = { authorization: `Bearer ${trial.key}`, ...(traceparent === null ? {} : { traceparent }) };
  const reply = await trial.chat({ ...ASK, ...more }, { headers });
  expect(reply.status).toBe(200);
  await reply.text();
  return (await trial.calls()).map((call) => call.traceparent);
}

test.each([
  ['a plain call', {}],
  ['a stream', { stream: true }],
  // The gateway on Node hands it over to another thread.
  ['a large call', { messages: [{ role: 'user', content: 'x'.repeat(200_000) }] }],
])('%s is recorded with the agent’s own span', async (_, more) => {
  expect(await recorded(VALID, more)).toEqual([VALID]);
});

test('of a later version, the part is recorded that all versions share', async () => {
  expect(await recorded(`cc-${TRACE}-${SPAN}-01-what-the-future-adds-${'x'.repeat(2000)}`)).toEqual([
    `cc-${TRACE}-${SPAN}-01`,
  ]);
});

test.each([
  ['no header', null],
  ['an empty one', ''],
  ['capital letters', VALID.toUpperCase()],
  ['a trace of zeros', `00-${'0'.repeat(32)}-${SPAN}-01`],
  ['a span of zeros', `00-${TRACE}-${'0'.repeat(16)}-01`],
  ['a version that cannot be', `ff-${TRACE}-${SPAN}-01`],
  ['a short span', `00-${TRACE}-${SPAN.slice(1)}-01`],
  ['more than version 0 has', `${VALID}-more`],
  ['a version with more and no separator', `cc-${TRACE}-${SPAN}-01x`],
  ['two headers in one', `${VALID}, ${VALID}`],
])('a call with %s is answered and recorded without a span', async (_, traceparent) => {
  expect(await recorded(traceparent)).toEqual([null]);
});
