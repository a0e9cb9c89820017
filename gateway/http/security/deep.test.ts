import { expect, test } from 'vitest';
import { ASK, useGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useGateway();
const DEPTHS = [1_000, 5_000, 20_000, 500_000];
const deep = (depth: number): string => `${'['.repeat(depth)}${']'.repeat(depth)}`;
const deepObject = (depth: number): string => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`;

test.each(
  DEPTHS.flatMap((depth) =>
    [deep(depth), deepObject(depth)].map((value) => [depth, value.slice(0, 5), value] as const),
  ),
)(
  'a request body %s levels deep (%s) is answered or refused without an internal error',
  async (_depth, _kind, value) => {
    const trial = await gateway.trial();
    const bodies = [
      value,
      `{"messages":${value}}`,
      `{"messages":[{"role":"user","content":${value}}]}`,
      `{"messages":[{"role":"user","content":"x"}],"metadata":${value}}`,
      `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":${value}}}]}`,
    ];
    for (const body of bodies) {
      const reply = await trial.chat(body);
      const text = await reply.text();
      expect([reply.status === 200 || reply.status === 400, text.slice(0, 200)]).toEqual([true, text.slice(0, 200)]);
    }
    const opening = await gateway.admin('POST', '/sessions/deep', { sampling: JSON.parse(deep(100)) });
    expect(opening.status).toBe(400);
    expect((await trial.chat(ASK)).status).toBe(200);
    expect((await gateway.admin('GET', `/sessions/${trial.id}`)).status).toBe(200);
    expect(gateway.log.join('\n')).not.toMatch(/internal_error|RangeError|Maximum call stack/);
  },
);
