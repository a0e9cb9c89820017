#!/usr/bin/env node
// The `trialgate` command. Starts under any Node from 20 on and runs the verb under the project's own Node.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { endWithNpm, MISSING_PREREQUISITE, OLDEST_NODE, runsTypeScript, runMain, olderThan } from './launch.mjs';

const node = fileURLToPath(new URL('../node_modules/.bin/node', import.meta.url));

endWithNpm();
if (olderThan(OLDEST_NODE)) {
  console.error(`error: Trialgate needs Node ${OLDEST_NODE.join('.')} or newer, this is ${process.version}`);
  process.exit(MISSING_PREREQUISITE);
} else if (!existsSync(node)) {
  console.error(
    'error: the npm packages are not installed. Run `npm ci` in the repository (or `npm run quickstart`). If another terminal installs them now, wait until it has ended.',
  );
  process.exit(MISSING_PREREQUISITE);
} else if (runsTypeScript()) {
  const { start } = await import('./main.ts');
  await start();
} else {
  await runMain(node, process.argv.slice(2));
}
