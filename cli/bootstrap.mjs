// Runs `npm run quickstart` and `npm test` on a fresh clone: installs the npm packages, then runs the verb under the project's own Node.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import util from 'node:util';
import { endWithNpm, MISSING_PREREQUISITE, OLDEST_NODE, olderThan, runMain } from './launch.mjs';
import { diskLack, inOneMessage, lookForPython, NEEDED_GB, systemLack } from './prerequisites.mjs';

const at = (relative) => fileURLToPath(new URL(`../${relative}`, import.meta.url));
const node = at('node_modules/.bin/node');

const REASONS = [
  [/ENOSPC|no space left/i, 'the disk is full: free some space'],
  [/EACCES|EPERM/, "a folder cannot be written (node_modules, or npm's cache): check who owns it"],
  [
    /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|network|E40[13]/i,
    'the package registry is out of reach: check the network, a proxy, and `npm config get registry`',
  ],
  [/EUSAGE|lock file/i, 'package.json and package-lock.json disagree: run `npm install` once'],
];

endWithNpm();
const lacks = lacksOf(process.argv.slice(2));
if (lacks.length > 0) fail(inOneMessage(lacks));
else if (installed() || (await install()))
  await runMain(node, process.argv.slice(2), process.argv[2] === 'test' ? '../tests/run/main.ts' : './main.ts');

/** Returns all that is missing for this verb. After the quickstart's npm packages come Python's, so what these need is checked here too. */
function lacksOf([verb, ...args]) {
  const isFirstQuickstart = verb === 'quickstart' && !installed() && !existsSync(at('.trialgate/venv'));
  const found = [
    olderThan(OLDEST_NODE) && `Trialgate needs Node ${OLDEST_NODE.join('.')} or newer, this is ${process.version}`,
    ...(isFirstQuickstart
      ? [systemLack(), ...lacksOfInstall(args)]
      : [process.platform !== 'linux' && `Trialgate runs on Linux; this is ${process.platform}`]),
  ];
  return found.filter(Boolean);
}

function lacksOfInstall(args) {
  const options = { python: { type: 'string' }, device: { type: 'string' }, config: { type: 'string' } };
  // Nodes older than 18 do not have all that is used here.
  const flags = util.parseArgs?.({ args, options, strict: false }).values ?? {};
  const { python = process.env.TRIALGATE_PYTHON, device = process.env.TRIALGATE_DEVICE, config } = flags;
  // A configuration file cannot be read before the packages are there, and it may name a Python.
  const mayNamePython = config !== undefined || existsSync('trialgate.yaml');
  return [
    !python && mayNamePython ? null : lookForPython(python).lack,
    olderThan(OLDEST_NODE) ? null : diskLack(at('.'), NEEDED_GB[device === 'cuda' ? 'cuda' : 'cpu']),
  ];
}

function installed() {
  const done = at('node_modules/.package-lock.json');
  return existsSync(node) && existsSync(done) && statSync(done).mtimeMs >= statSync(at('package-lock.json')).mtimeMs;
}

/** @returns {Promise<boolean>} true when the packages are installed; on false an error was printed. */
async function install() {
  const started = Date.now();
  const line = setInterval(() => showProgress(started), process.stderr.isTTY ? 500 : 15_000);
  showProgress(started);
  const { code, output } = await npm(['ci']);
  clearInterval(line);
  if (process.stderr.isTTY) process.stderr.write('\n');
  if (code === 0) return true;
  if (code === 130) return ((process.exitCode = 130), false);
  mkdirSync(at('.trialgate/logs'), { recursive: true });
  writeFileSync(at('.trialgate/logs/npm.log'), output);
  const reason = REASONS.find(([pattern]) => pattern.test(output))?.[1] ?? output.trim().split('\n').at(-1);
  fail(`installing the npm packages failed: ${reason} (all of its output: .trialgate/logs/npm.log)`);
  return false;
}

function showProgress(started) {
  const text = `npm packages … ${Math.round((Date.now() - started) / 1000)} s`;
  process.stderr.write(process.stderr.isTTY ? `\r${text}` : `${text}\n`);
}

function npm(command) {
  const child = spawn('npm', [...command, '--no-audit', '--no-fund'], {
    cwd: at('.'),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  let stopped = false;
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(name, () => ((stopped = true), child.kill(name)));
  child.stdout.on('data', (data) => (output += data));
  child.stderr.on('data', (data) => (output += data));
  return new Promise((resolve) => {
    child.on('error', (error) => resolve({ code: 1, output: `npm cannot be started: ${error.message}` }));
    child.on('close', (code) => {
      for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.removeAllListeners(name);
      resolve({ code: stopped ? 130 : (code ?? 1), output });
    });
  });
}

function fail(sentence) {
  console.error(`error: ${sentence}`);
  process.exitCode = MISSING_PREREQUISITE;
}
