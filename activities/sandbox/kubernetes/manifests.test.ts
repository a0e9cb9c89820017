import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { REPOSITORY } from '../../../core/repository.ts';
import { networkPolicy } from './manifests.ts';

const objects = parseAllDocuments(readFileSync(join(REPOSITORY, 'deploy/kubernetes-sandboxes.yaml'), 'utf8')).map(
  (document): unknown => document.toJS(),
);
const kinds = z.looseObject({ kind: z.string() });
const ofKind = (kind: string): unknown => objects.find((object) => kinds.parse(object).kind === kind);

it('the policy to apply is the one that a worker makes', () => {
  expect(ofKind('NetworkPolicy')).toMatchObject({ ...networkPolicy() });
});

it('the role to apply grants each verb that a worker uses', () => {
  const rule = z.object({ resources: z.array(z.string()), verbs: z.array(z.string()) });
  const { rules } = z.object({ rules: z.array(rule) }).parse(ofKind('Role'));
  const granted = rules.flatMap(({ resources, verbs }) =>
    resources.flatMap((one) => verbs.map((verb) => `${verb} ${one}`)),
  );
  const folder = fileURLToPath(new URL('.', import.meta.url));
  const sources = readdirSync(folder).filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'));
  const used = sources.flatMap((file) => [
    ...readFileSync(join(folder, file), 'utf8').matchAll(/'((?:get|list|create|delete) (?:pods|networkpolicies))'/g),
  ]);
  expect(used.length).toBeGreaterThan(5);
  for (const [, verb] of used) expect(granted).toContain(verb);
  expect(granted).toEqual(
    expect.arrayContaining(['create pods/exec', 'create pods/attach', 'get pods/exec', 'get pods/attach']),
  );
});
