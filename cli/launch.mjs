// Runs before the project's own Node starts: plain JavaScript for Node 20 without packages.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const OLDEST_NODE = [20, 0];
export const MISSING_PREREQUISITE = 3;

/** @param {number[]} wanted [major, minor] */
export function olderThan([major, minor]) {
  const [ours, oursMinor] = process.versions.node.split('.').map(Number);
  return ours < major || (ours === major && oursMinor < minor);
}

/** True when this Node runs main.ts as it is, by stripping its types. */
export const runsTypeScript = () => !olderThan([22, 18]);

/**
 * Ends this process when the npm that started it ends. A signal to `npx` or `npm run` ends npm and its shell, but they do not pass
 * it on, so their child processes would keep running.
 */
export function endWithNpm() {
  const [parent, grandparent] = [process.ppid, parentOf(process.ppid)];
  // npm's shell may have become this process. Then the grandparent is the user's shell, which may end without npm.
  const direct = isNpm(parent);
  if (!direct && !isNpm(grandparent)) return;
  const timer = setInterval(() => {
    if (process.ppid === parent && (direct || parentOf(parent) === grandparent)) return;
    clearInterval(timer);
    process.kill(process.pid, 'SIGTERM');
  }, 500);
  timer.unref();
}

/**
 * Reads what `core/process-stat.ts` reads, which Node 20 cannot import.
 * @param {number} pid
 */
function parentOf(pid) {
  const status = read(`/proc/${pid}/stat`);
  return Number(status.slice(status.lastIndexOf(')') + 2).split(' ')[1] ?? 0);
}

/**
 * npm replaces its command line by a title such as "npm exec trialgate". Before that it is Node with npm's script.
 * @param {number} pid
 */
function isNpm(pid) {
  const [program = '', script = ''] = read(`/proc/${pid}/cmdline`).split('\0');
  return (
    /^(npm|npx)( |$)/.test(program) || (/(^|\/)node(js)?$/.test(program) && /(^|\/)(npm|npx)(-cli\.js)?$/.test(script))
  );
}

/** @param {string} file */
function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/**
 * Runs `cli/main.ts`, or another program with its `start`, under `node` and ends with its exit code. Passes signals on. If this process is
 * killed, the channel between the two closes and the program stops by itself.
 */
export function runMain(node, args, program = './main.ts') {
  const main = fileURLToPath(new URL(program, import.meta.url));
  const child = spawn(node, [main, ...args], { stdio: ['inherit', 'inherit', 'inherit', 'ipc'] });
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(name, () => child.kill(name));
  return new Promise((resolve) => {
    child.on('error', (error) => {
      console.error(`error: cannot start ${node}: ${error.message}. Run \`npm ci\` in the repository.`);
      process.exitCode = MISSING_PREREQUISITE;
      resolve();
    });
    child.on('exit', (code, signal) => {
      process.exitCode = code ?? (signal === 'SIGINT' ? 130 : 143);
      resolve();
    });
  });
}
