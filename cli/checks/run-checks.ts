import { existsSync } from 'node:fs';
import path from 'node:path';
import { EXIT } from '../exit.ts';
import { INSTALLS } from '../folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { progressLine } from '../progress.ts';
import { capture } from './capture.ts';
import { failed, notChecked, passed, type Check, type Verdict } from './check.ts';
import { npmLicenses, pythonLicenses } from './licenses/check-licenses.ts';
import { references } from './references/check-references.ts';
import { npmVulnerabilities } from './vulnerabilities/npm-audit.ts';
import { pythonVulnerabilities } from './vulnerabilities/pip-audit.ts';

const bin = (name: string): string => path.join(REPOSITORY, 'node_modules/.bin', name);

const CHECKS: readonly Check[] = [
  { name: 'types', run: (signal) => command([bin('tsc'), '--noEmit'], signal) },
  { name: 'lint', run: (signal) => command([bin('oxlint'), '--deny-warnings'], signal) },
  { name: 'format', run: (signal) => command([bin('prettier'), '--check', '--log-level', 'warn', '.'], signal) },
  { name: 'ruff', run: (signal) => ruff(['check'], signal) },
  { name: 'ruff-format', run: (signal) => ruff(['format', '--check'], signal) },
  { name: 'references', run: references },
  { name: 'npm-licenses', run: npmLicenses },
  { name: 'python-licenses', run: pythonLicenses },
  { name: 'npm-vulnerabilities', run: npmVulnerabilities },
  { name: 'python-vulnerabilities', run: pythonVulnerabilities },
];

export const CHECK_NAMES: readonly string[] = CHECKS.map(({ name }) => name);

/** Runs all checks, or the named ones, and prints a line for each. Returns the exit code; a check that cannot run does not fail. */
export async function runChecks(names: readonly string[], signal: AbortSignal): Promise<number> {
  const wanted = CHECKS.filter(({ name }) => names.length === 0 || names.includes(name));
  const counts = { passed: 0, failed: 0, 'not checked': 0 };
  for (const [position, { name, run }] of wanted.entries()) {
    const started = Date.now();
    const progress = progressLine();
    if (process.stderr.isTTY) progress.show(`check ${position + 1}/${wanted.length}: ${name}`);
    const verdict = await run(signal).finally(() => progress.end());
    counts[verdict.result] += 1;
    const seconds = `${Math.round((Date.now() - started) / 1000)} s`;
    console.log(`${name.padEnd(23)} ${verdict.result.padEnd(12)} ${seconds.padStart(5)}  ${verdict.summary}`);
    for (const detail of verdict.details ?? []) console.log(`  ${detail}`);
  }
  console.log(`\n${counts.passed} passed, ${counts.failed} failed, ${counts['not checked']} not checked`);
  return counts.failed > 0 ? EXIT.failed : EXIT.done;
}

async function command(words: readonly string[], signal: AbortSignal): Promise<Verdict> {
  const { code, stdout, stderr } = await capture(words, signal);
  const lines = `${stdout}\n${stderr}`.split('\n').filter((line) => line.trim());
  return code === 0 ? passed('') : failed(`exit code ${code}`, lines);
}

async function ruff(words: readonly string[], signal: AbortSignal): Promise<Verdict> {
  if (!existsSync(INSTALLS.python)) return notChecked('ruff is not installed: run `npx trialgate install` first');
  return command([INSTALLS.python, '-m', 'ruff', ...words, '--no-cache', '.'], signal);
}
