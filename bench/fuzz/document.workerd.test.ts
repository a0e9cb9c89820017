import { expect, inject, test } from 'vitest';
import { startGateway } from '../../gateway/node.ts';
import { startWorkerGateway } from '../../gateway/testing/worker-gateway.ts';
import '../../gateway/testing/workerd-setup.ts';
import { fuzzDocument, type DocumentOptions } from './schemathesis.ts';

const seed = Number(process.env['FUZZ_SEED'] ?? Date.now() % 1_000_000);
const RUNTIMES: Record<string, DocumentOptions['start']> = { Node: startGateway, workerd: (options) => startWorkerGateway(inject('workerBundle'), options) };

// The first time it installs schemathesis; of two files one would find it half installed.
test.for(Object.entries(RUNTIMES))(`the API on %s is not what its document says, or does not foresee what it allows (FUZZ_SEED=${seed})`, { timeout: 400_000 }, async ([, start], { signal }) => {
  const { faults, text } = await fuzzDocument({ seed, examples: 5, start, signal });
  expect(text).toContain('Tested: 10');
  expect([faults, text]).toEqual([0, text]);
});
