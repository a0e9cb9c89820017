import { expect, test } from 'vitest';
import { startTestGateway } from '../../../tests/support/harness/gateways.ts';
import { fuzzGateway } from '../../../tests/support/scenarios/fuzz/fuzz-gateway.ts';

/** A seed of every day would find faults in changes that did not make them: `bench/fuzz.ts` looks for new ones. */
const seed = Number(process.env['FUZZ_SEED'] ?? 7);

test(`malformed requests and engine replies (FUZZ_SEED=${seed}) cause no internal error in the gateway and reach no other trial`, async ({
  signal,
}) => {
  const { faults, statuses, served } = await fuzzGateway({ seed, rounds: 40, start: startTestGateway, signal });
  expect(faults).toEqual([]);
  // There were several kinds of answers, from all routes.
  expect([...served].toSorted()).toEqual([
    '/v1/chat/completions',
    '/v1/completions',
    '/v1/messages',
    '/v1/messages/count_tokens',
    '/v1/responses',
    '/v1beta/models/m:countTokens',
    '/v1beta/models/m:generateContent',
    '/v1beta/models/m:streamGenerateContent?alt=sse',
  ]);
  expect(statuses[200]).toBeGreaterThan(20);
  expect(statuses[400]).toBeGreaterThan(20);
});
