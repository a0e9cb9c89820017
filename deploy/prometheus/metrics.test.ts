import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { asMetrics, Counters } from '../../gateway/calls/counters.ts';
import { attemptMetrics } from '../../gateway/http/attempt-metrics.ts';

const read = (name: string): string => readFileSync(join(import.meta.dirname, name), 'utf8');

const board = z
  .object({ panels: z.array(z.object({ title: z.string(), targets: z.array(z.object({ expr: z.string() })).min(1) })) })
  .parse(JSON.parse(read('board.json')));
const rules = z
  .object({ groups: z.array(z.object({ rules: z.array(z.object({ alert: z.string(), expr: z.string() })) })) })
  .parse(parse(read('rules.yaml')));

const counted = `${asMetrics(new Counters(), [])}\n${attemptMetrics([])}`;
const known = new Set([...counted.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name));

const named: [string, string][] = [
  ...board.panels.flatMap(({ title, targets }) => targets.map(({ expr }): [string, string] => [title, expr])),
  ...rules.groups.flatMap((group) => group.rules.map(({ alert, expr }): [string, string] => [alert, expr])),
];

test.each(named)('"%s" asks for metrics that a gateway has', (_, expr) => {
  const metrics = expr.match(/trialgate_\w+/g) ?? [];
  expect(metrics.filter((name) => !known.has(name))).toEqual([]);
});
