import { expect, test } from 'vitest';
import { fuzzDocument, hasSchemathesis } from './schemathesis.ts';

const seed = Number(process.env['FUZZ_SEED'] ?? Date.now() % 1_000_000);
const name = `the API is not what its document says, or does not foresee what it allows (FUZZ_SEED=${seed})`;

test.skipIf(!hasSchemathesis())(hasSchemathesis() ? name : `${name}: schemathesis is not there, \`node bench/fuzz.ts\` installs it`, { timeout: 120_000 }, async ({ signal }) => {
  const { faults, text } = await fuzzDocument({ seed, examples: 5, signal });
  expect(text).toContain('Tested: 10');
  expect([faults, text]).toEqual([0, text]);
});
