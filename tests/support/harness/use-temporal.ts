import type { TestWorkflowEnvironment } from '@temporalio/testing';
import { afterAll, beforeAll } from 'vitest';
import { startTemporal, stopTemporal, type Temporal } from './workflow-worker.ts';

/** Starts a Temporal server for this test file, before its first test. */
export function useTemporal(): Temporal {
  let environment: TestWorkflowEnvironment | undefined;
  beforeAll(async () => void (environment = await startTemporal()));
  afterAll(async () => void (environment && (await stopTemporal(environment))));
  const started = (): TestWorkflowEnvironment => {
    if (!environment) throw new Error('Temporal starts before the first test: use it only in tests and hooks');
    return environment;
  };
  return {
    get client() {
      return started().client;
    },
    get nativeConnection() {
      return started().nativeConnection;
    },
    get address() {
      return started().address;
    },
  };
}
