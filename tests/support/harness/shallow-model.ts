import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { join } from 'node:path';
import { INSTALLS } from '../../../cli/folders.ts';

/** Writes the small model's first layers into `folder`. They are real weights that answer and train in the same way, only faster. */
export async function shallowModel(folder: string, layers: number): Promise<string> {
  const script = join(INSTALLS.gpuWorkers, 'shallow_model.py');
  await promisify(execFile)(INSTALLS.python, [script, INSTALLS.smallModel, folder, '--layers', String(layers)]);
  return folder;
}
