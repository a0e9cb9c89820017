import { expect, inject, test } from 'vitest';
import { startGateway } from '../../gateway/runtimes/node/start-gateway.ts';
import { startWorkerGateway } from '../../tests/support/harness/worker-gateway.ts';
import '../../tests/support/harness/workerd-setup.ts';
import { fuzzDocument, type DocumentOptions } from './schemathesis.ts';

const seed = Number(process.env['FUZZ_SEED'] ?? Date.now() % 1_000_000);
const RUNTIMES: Record<string, DocumentOptions['start']> = {
  Node: startGateway,
  workerd: (options) => startWorkerGateway(inject('workerBundle'), options),
};

// One file tests both runtimes, because the first use installs schemathesis and a second file could find it half installed.
test.for(Object.entries(RUNTIMES))(
  `the gateway on %s answers each request as its OpenAPI document says (FUZZ_SEED=${seed})`,
  { timeout: 400_000 },
  async ([, start], { signal }) => {
    const { faults, text } = await fuzzDocument({ seed, examples: 5, start, signal });
    expect(text).toMatch(/Selected: (\d+)\/\1\s+Tested: \1\s/);
    expect(faults, text).toBe(0);
  },
);
