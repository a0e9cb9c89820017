import type { TestProject } from 'vitest/node';
import { bundleWorker } from './bundle-worker.ts';
import type { Bundle } from './workerd.ts';

declare module 'vitest' {
  interface ProvidedContext {
    workerBundle: Bundle;
  }
}

/** Builds one bundle for all test files that run in workerd. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { script, compatibilityDate, compatibilityFlags, remove } = await bundleWorker();
  project.provide('workerBundle', { script, compatibilityDate, compatibilityFlags });
  return remove;
}
