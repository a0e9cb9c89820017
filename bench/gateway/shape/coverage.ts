/**
 * Node loads this before a program (`--import 'coverage.ts?to=FOLDER'`). At each SIGUSR2 it writes the names of the files that ran a
 * function since the last one to FOLDER/NUMBER.json.
 */
import { renameSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { join } from 'node:path';
import { isMainThread } from 'node:worker_threads';

const folder = new URL(import.meta.url).searchParams.get('to');
if (isMainThread && folder !== null) {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  let taken = 0;
  process.on('SIGUSR2', async () => {
    const { result } = await session.post('Profiler.takePreciseCoverage');
    const ran = result.filter(({ functions }) =>
      functions.some(({ functionName, ranges }) => functionName !== '' && ranges.some(({ count }) => count > 0)),
    );
    const file = join(folder, `${++taken}.json`);
    writeFileSync(`${file}.new`, JSON.stringify(ran.map(({ url }) => url)));
    renameSync(`${file}.new`, file);
  });
}
