import { WorkflowNotFoundError, type Client } from '@temporalio/client';
import proto from '@temporalio/proto';
import type { TestWorkflowEnvironment } from '@temporalio/testing';
import { afterAll, beforeAll, inject } from 'vitest';
import { registerSearchAttributes } from '../../../cli/search-attributes.ts';
import { connectTemporal, endWorkers, startTemporal, stopTemporal, type Temporal } from './workflow-worker.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The server that `temporal-setup.ts` starts. Undefined in a project without this setup, where each file starts a server of its own. */
    temporalAddress: string | undefined;
  }
}

const RETENTION = proto.google.protobuf.Duration.fromObject({ seconds: 86_400 });

let namespaces = 0;

/** Gives this test file a namespace of its own on the Temporal server that all files of a run share, before its first test. */
export function useTemporal(): Temporal {
  let environment: TestWorkflowEnvironment | undefined;
  const address = inject('temporalAddress');
  beforeAll(async () => void (environment = await (address ? openNamespace(address) : startTemporal())));
  afterAll(async () => {
    if (!environment) return;
    await endWorkers(environment);
    if (address) await terminateOpen(environment.client);
    await stopTemporal(environment);
  });
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

async function openNamespace(address: string): Promise<TestWorkflowEnvironment> {
  const namespace = `test-${process.pid}-${++namespaces}`;
  const environment = await connectTemporal(address, namespace);
  const { connection } = environment;
  await connection.workflowService.registerNamespace({ namespace, workflowExecutionRetentionPeriod: RETENTION });
  await registerSearchAttributes(connection, namespace);
  return environment;
}

/** Terminates what a file left open, whose timers would keep the shared server busy. */
async function terminateOpen(client: Client): Promise<void> {
  for await (const { workflowId, runId } of client.workflow.list({ query: "ExecutionStatus = 'Running'" })) {
    await client.workflow
      .getHandle(workflowId, runId)
      .terminate()
      .catch((error: unknown) => {
        if (!(error instanceof WorkflowNotFoundError)) throw error;
      });
  }
}
