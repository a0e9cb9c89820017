import { z } from 'zod';
import { capture, lastLine } from '../capture.ts';
import { failed, notChecked, passed, type Verdict } from '../check.ts';
import { ACCEPTED } from './accepted.ts';

const advisory = z.object({
  name: z.string(),
  title: z.string(),
  url: z.string(),
  severity: z.string(),
  range: z.string(),
});
const report = z.object({
  vulnerabilities: z.record(z.string(), z.object({ via: z.array(z.union([z.string(), advisory])) })),
});
const refusal = z.object({ message: z.string() });

/** Asks the npm registry for advisories on every package of package-lock.json. */
export async function npmVulnerabilities(signal: AbortSignal, registry?: string): Promise<Verdict> {
  const of = registry === undefined ? [] : ['--registry', registry];
  const { stdout, stderr } = await capture(['npm', 'audit', '--json', '--fetch-retries=1', ...of], signal);
  const output = jsonIn(stdout);
  const found = report.safeParse(output);
  if (!found.success) {
    const why = refusal.safeParse(output).data?.message ?? (lastLine(stderr) || 'npm did not answer');
    return notChecked(`the npm registry gives no advisories here: ${why}`);
  }
  const advisories = new Map(
    Object.values(found.data.vulnerabilities).flatMap(({ via }) =>
      via.flatMap((each) => (typeof each === 'string' ? [] : [[each.url, each] as const])),
    ),
  );
  const open = [...advisories.values()].filter(({ url }) => ACCEPTED[idIn(url)] === undefined);
  if (open.length === 0)
    return passed(
      `no advisory is open${advisories.size > 0 ? ` (${advisories.size} accepted: cli/checks/vulnerabilities/accepted.ts)` : ''}`,
    );
  return failed(
    `${open.length} open advisories`,
    open.map(({ name, range, severity, title, url }) => `${name} ${range}: ${severity}, ${title} (${url})`),
  );
}

/** Returns an advisory's id, with which its address ends. */
const idIn = (url: string): string => url.split('/').at(-1) ?? '';

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
