import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { z } from 'zod';
import { INSTALLS } from '../../folders.ts';
import { content, lockFile, type Lock } from '../../install/locks.ts';
import { pythonTool } from '../../install/python-tools.ts';
import { capture, lastLine, type CommandOutput } from '../capture.ts';
import { failed, notChecked, passed, type Verdict } from '../check.ts';
import { ACCEPTED } from './accepted.ts';

const LOG = path.join(INSTALLS.root, 'logs/check.log');

const vulnerability = z.object({ id: z.string(), aliases: z.array(z.string()), fix_versions: z.array(z.string()) });
const dependency = z.union([
  z.object({ name: z.string(), version: z.string(), vulns: z.array(vulnerability) }),
  z.object({ name: z.string(), skip_reason: z.string() }),
]);
const report = z.object({ dependencies: z.array(dependency) });
export type Dependency = z.infer<typeof dependency>;

/** Each set is one environment, because pip-audit takes only one version of a package at a time. */
const SETS: readonly (readonly Lock[])[] = [['torch-cpu', 'cpu'], ['cuda'], ['dev'], ['tools']];

/** Asks the Python package index for advisories on every locked package. */
export async function pythonVulnerabilities(signal: AbortSignal): Promise<Verdict> {
  const audit = await pythonTool('pip-audit', LOG, signal).catch((error: unknown) => {
    signal.throwIfAborted();
    return error instanceof Error ? error : new Error(String(error));
  });
  if (audit instanceof Error) return notChecked(audit.message);
  return auditSets(audit, signal);
}

/** Runs this pip-audit on each set of locks. An advisory on one set counts even if the index does not answer for another set. */
export async function auditSets(audit: string, signal: AbortSignal): Promise<Verdict> {
  const folder = await mkdtemp(path.join(tmpdir(), 'trialgate-audit-'));
  try {
    const unanswered: string[] = [];
    const dependencies: Dependency[] = [];
    for (const locks of SETS) {
      const requirements = path.join(folder, `${locks.join('-')}.txt`);
      await writeFile(requirements, locks.map(pinsOf).join('\n'));
      const options = ['--no-deps', '--disable-pip', '--progress-spinner', 'off', '--format', 'json'];
      const found = readPipAudit(await capture([audit, '--requirement', requirements, ...options], signal));
      if (typeof found === 'string') unanswered.push(found);
      else dependencies.push(...found);
    }
    const verdict = judge(dependencies);
    const [why] = unanswered;
    return why === undefined || verdict.result === 'failed' ? verdict : notChecked(why);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Returns `name==version ; marker` of each package. An index has advisories on versions, not on builds such as `+cpu`. */
function pinsOf(lock: Lock): string {
  const pins = content(lockFile(lock)).matchAll(/^([A-Za-z0-9._-]+==[^\s;+]+)(?:\+\S+)?( ;[^\\\n]*)?/gm);
  return [...pins].map(([, pin = '', marker = '']) => pin + marker).join('\n');
}

/** Returns what pip-audit found, or a sentence that says why it found nothing. */
export function readPipAudit({ stdout, stderr }: CommandOutput): Dependency[] | string {
  try {
    return report.parse(JSON.parse(stdout)).dependencies;
  } catch {
    return `the Python package index gives no advisories here: ${lastLine(stderr).slice(0, 160) || 'pip-audit did not answer'}`;
  }
}

/** Returns the verdict. pip-audit skips a package that the index does not know, and reports no vulnerability for it. */
export function judge(dependencies: readonly Dependency[]): Verdict {
  const known = dependencies.flatMap((each) => ('vulns' in each ? [each] : []));
  const skipped = [...new Set(dependencies.flatMap((each) => ('vulns' in each ? [] : [each.name])))];
  if (known.length === 0)
    return notChecked(`the Python package index gives no advisories here: it knows none of ${skipped.length} packages`);
  const open = known.flatMap(({ name, version, vulns }) =>
    vulns
      .filter(({ id, aliases }) => [id, ...aliases].every((each) => ACCEPTED[each] === undefined))
      .map(
        ({ id, fix_versions: fixed }) =>
          `${name} ${version}: ${id}, ${fixed.length > 0 ? `repaired in ${fixed.join(', ')}` : 'not repaired yet'}`,
      ),
  );
  const left = skipped.length > 0 ? `; the index knows nothing of ${skipped.join(', ')}` : '';
  const sentences = [...new Set(open)];
  if (sentences.length > 0) return failed(`${sentences.length} open advisories${left}`, sentences);
  return passed(`no advisory on ${known.length} packages is open${left}`);
}
