import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectionsOf } from '../../../cli/config/connections.ts';
import { socketFolder } from '../../../cli/supervisor/plan.ts';
import { openDatabase, type Database } from '../../../store/database.ts';
import { TestDeployment } from './deployment.ts';
import { shallowModel } from './shallow-model.ts';

export type ShallowDeployment = {
  /** A temporary folder for the test's own files, which sandboxes can read. */
  folder: string;
  /** The folder of the model. */
  model: string;
  deployment: TestDeployment;
  db: Database;
  /** The Unix socket of the deployment's vLLM. */
  engineSocket: string;
  remove: () => Promise<void>;
};

/** Starts a complete deployment whose vLLM has the small model's first 4 layers. They answer and train in the same way, only faster. */
export async function shallowDeployment(settings: Record<string, string> = {}): Promise<ShallowDeployment> {
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-shallow-'));
  let deployment: TestDeployment | undefined;
  let db: Database | undefined;
  const remove = async (): Promise<void> => {
    await db?.$client.end();
    await deployment?.remove();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await chmod(folder, 0o755);
    const model = await shallowModel(join(folder, 'model'), 4);
    deployment = await TestDeployment.create({ TRIALGATE_MODEL: model, ...settings });
    await deployment.up();
    db = openDatabase(connectionsOf(deployment.config).databaseUrl);
    const engineSocket = join(socketFolder(deployment.home), 'engine.sock');
    return { folder, model, deployment, db, engineSocket, remove };
  } catch (error) {
    await remove();
    throw error;
  }
}
