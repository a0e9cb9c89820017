import { expect, test } from 'vitest';
import { fuzzDocument } from './schemathesis.ts';

const seed = Number(process.env['FUZZ_SEED'] ?? Date.now() % 1_000_000);

// The first time it installs schemathesis.
test(`the API is not what its document says, or does not foresee what it allows (FUZZ_SEED=${seed})`, { timeout: 400_000 }, async ({ signal }) => {
  const { faults, text } = await fuzzDocument({ seed, examples: 5, signal });
  expect(text).toContain('Tested: 10');
  expect([faults, text]).toEqual([0, text]);
});
