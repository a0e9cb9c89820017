import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { writeAtomically } from './files.ts';
import { INSTALLS } from './folders.ts';
import { REPOSITORY } from '../core/repository.ts';

const folder = path.join(REPOSITORY, 'workflows');

/** Bundles the workflows into one file, once for each version of their code, and returns its path. */
export async function workflowBundle(): Promise<{ codePath: string }> {
  const codePath = path.join(INSTALLS.root, 'workflows', `${digest()}.js`);
  if (!existsSync(codePath)) {
    const { code } = await bundleWorkflowCode({
      workflowsPath: path.join(folder, 'index.ts'),
      logger: new DefaultLogger('ERROR'),
    });
    mkdirSync(path.dirname(codePath), { recursive: true });
    writeAtomically(codePath, code);
  }
  return { codePath };
}

function digest(): string {
  const hash = createHash('sha256').update(readFileSync(path.join(REPOSITORY, 'package-lock.json')));
  for (const name of readdirSync(folder).toSorted()) {
    if (name.endsWith('.ts') && !name.endsWith('.test.ts'))
      hash.update(name).update(readFileSync(path.join(folder, name)));
  }
  return hash.digest('hex').slice(0, 16);
}
