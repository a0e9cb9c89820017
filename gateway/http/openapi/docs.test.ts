import { expect, test } from 'vitest';
import { useSharedGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway();
const MODEL_ROUTES = /^\/:trial\/|^\/v1(beta)?\//;
const PAGE = /^\/(docs|openapi\.json|ui)/;

type Document = {
  openapi: string;
  paths: Record<string, Record<string, { operationId: string }>>;
  components: { schemas: Record<string, unknown> };
};
const read = async (): Promise<Document> => (await fetch(`${gateway.gateway.url}/openapi.json`)).json();

test('the API document describes exactly the routes that the gateway serves', async () => {
  const { openapi, paths } = await read();
  expect(openapi).toBe('3.1.0');
  const described = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method} ${path}`),
  );
  const served = gateway.gateway.routes
    .filter(({ path, method }) => method !== 'ALL' && !MODEL_ROUTES.test(path) && !PAGE.test(path))
    .map(
      ({ path, method }) =>
        `${method.toLowerCase()} ${path.replace(':trial', '{trial_id}').replace(':call', '{call_id}').replace(':iteration', '{iteration}').replace(':run', '{run_id}').replace(':sha256', '{sha256}')}`,
    );
  expect([...new Set(served)].toSorted()).toEqual(described.toSorted());
});

test('every reference in the API document resolves', async () => {
  const document = await read();
  const names = [...JSON.stringify(document).matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(([, name]) => name);
  expect(names).toContain('Turn');
  for (const name of names) expect(document.components.schemas).toHaveProperty(name ?? '');
});

test('the page of the API document loads only the gateway’s own files, and no other file is served', async () => {
  const page = await fetch(`${gateway.gateway.url}/docs`);
  const html = await page.text();
  expect(page.headers.get('content-security-policy')).toContain("default-src 'self'");
  expect(html).not.toMatch(/https?:/);
  for (const [, path] of html.matchAll(/(?:src|href)="([^"]+)"/g))
    expect([path, (await fetch(`${gateway.gateway.url}${path}`)).status]).toEqual([path, 200]);
  for (const path of ['/docs/package.json', '/docs/..%2fpackage.json', '/docs/constructor'])
    expect((await fetch(`${gateway.gateway.url}${path}`)).status).toBe(404);
});
