import { z } from 'zod';
import { REPOSITORY } from '../../core/repository.ts';
import { table } from '../../cli/show/table.ts';

const frame = z.object({ functionName: z.string(), url: z.string(), lineNumber: z.number() });
const profile = z.object({
  nodes: z.array(z.object({ id: z.number(), callFrame: frame })),
  startTime: z.number(),
  samples: z.array(z.number()),
  timeDeltas: z.array(z.number()),
});

/** A time window in microseconds of the clock of V8's samples. */
export type Window = { from: number; to: number };
export const profileClock = (): number => Number(process.hrtime.bigint() / 1000n);

const IDLE = ['(idle)', '(root)'];
/** Longer names are cut, because V8 names a regular expression by its whole source. */
const LONGEST_NAME = 60;

/** Returns the functions and packages with the most self time within the windows. */
export function selfTimes(json: string, windows: readonly Window[], count = 25): string {
  const { nodes, startTime, samples, timeDeltas } = profile.parse(JSON.parse(json));
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]));
  const functions = new Map<string, number>();
  const packages = new Map<string, number>();
  let at = startTime;
  let total = 0;
  for (const [i, id] of samples.entries()) {
    const delta = timeDeltas[i] ?? 0;
    at += delta;
    const where = frames.get(id);
    if (!where || IDLE.includes(where.functionName) || !windows.some(({ from, to }) => at >= from && at <= to))
      continue;
    total += delta;
    add(functions, `${where.functionName.slice(0, LONGEST_NAME) || '(anonymous)'}\t${placeOf(where)}`, delta);
    add(packages, packageOf(where), delta);
  }
  const share = (micros: number) => ((100 * micros) / total).toFixed(1);
  const most = (times: Map<string, number>, top: number) => [...times].toSorted((a, b) => b[1] - a[1]).slice(0, top);
  return [
    `processor time by its own functions, ${(total / 1e6).toFixed(1)} s busy`,
    table(
      ['%', 'function', 'where'],
      most(functions, count).map(([name, micros]) => [share(micros), ...name.split('\t')]),
    ),
    '',
    table(
      ['%', 'package'],
      most(packages, 15).map(([name, micros]) => [share(micros), name]),
    ),
  ].join('\n');
}

const add = (times: Map<string, number>, key: string, micros: number) => times.set(key, (times.get(key) ?? 0) + micros);

type Frame = z.output<typeof frame>;

function placeOf({ url, lineNumber }: Frame): string {
  const file = url
    .replace('file://', '')
    .replace(`${REPOSITORY}/`, '')
    .replace(/^.*\/node_modules\//, '');
  return file ? `${file}:${lineNumber + 1}` : '';
}

function packageOf({ functionName, url }: Frame): string {
  if (url.startsWith('node:')) return 'node';
  const inModules = /\/node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*\/node_modules\/)/.exec(url)?.[1];
  if (inModules) return inModules;
  return url
    ? placeOf({ functionName, url, lineNumber: 0 }).split('/').slice(0, 2).join('/').replace(/:\d+$/, '')
    : functionName.startsWith('(')
      ? functionName
      : 'native';
}
