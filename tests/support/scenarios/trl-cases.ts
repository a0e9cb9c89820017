import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll } from 'vitest';
import { z } from 'zod';
import { INSTALLS } from '../../../cli/folders.ts';
import { REPOSITORY } from '../../../core/repository.ts';
import { LoadingEngine } from '../fakes/loading-engine.ts';
import { ADMIN_KEY, TestGateway } from '../harness/gateways.ts';
import { TRL_ENVIRONMENT } from '../harness/trl-environment.ts';
import type { TestPostgres } from '../harness/postgres.ts';
import { useServer } from '../harness/use-database.ts';

const said = z.record(z.string(), z.unknown());
/** What each case said, by its name. */
export type Said = z.output<typeof said>;

class GatewayOfTrainer extends TestGateway<TestPostgres> {
  override async openEngine(): Promise<void> {
    this.engine = await new LoadingEngine().start();
  }
}

export type TrlCases = {
  gateway: TestGateway<TestPostgres>;
  /** The temporary folder of the program. */
  readonly temporary: string;
  /** Runs the cases of `clients/trl/misuse.py`, all or `only` these. */
  run(...only: string[]): Promise<Said>;
};

/** Gives a test file a gateway and an engine for the program that trains with TRL and does it in wrong ways. */
export function useTrlCases(): TrlCases {
  // The files with real parts share no server.
  const gateway = useServer(new GatewayOfTrainer());
  let temporary = '';
  beforeAll(async () => {
    temporary = await mkdtemp(join(tmpdir(), 'trialgate-misuse-'));
    await gateway.openEngine();
    await gateway.start();
  });
  afterAll(async () => {
    await gateway.gateway.close();
    await gateway.closeEngine();
    await rm(temporary, { recursive: true });
  });
  return {
    gateway,
    get temporary() {
      return temporary;
    },
    run: async (...only) => {
      const program = join(REPOSITORY, 'clients/trl/misuse.py');
      const args = [program, gateway.gateway.url, ADMIN_KEY, gateway.engine.url, join(REPOSITORY, 'tasks/train')];
      const { stdout } = await promisify(execFile)(INSTALLS.python, [...args, ...only], {
        env: { ...process.env, ...TRL_ENVIRONMENT, TMPDIR: temporary },
        timeout: 400_000,
      });
      return said.parse(JSON.parse(stdout.trim().split('\n').at(-1) ?? ''));
    },
  };
}
