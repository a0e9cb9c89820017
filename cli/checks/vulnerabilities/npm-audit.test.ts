import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { afterEach, expect, test } from 'vitest';
import { npmVulnerabilities } from './npm-audit.ts';

const signal = new AbortController().signal;
const ACCEPTED_ONE = advisory('GHSA-67mh-4wv8-2f99', '<=0.24.2');

let registry: Server | null = null;
afterEach(() => registry?.close());

function advisory(id: string, range: string) {
  return {
    id: 1,
    url: `https://github.com/advisories/${id}`,
    title: 'it answers anyone',
    severity: 'high',
    vulnerable_versions: range,
    cwe: [],
    cvss: { score: 8, vectorString: null },
  };
}

/** Starts a registry that gives these advisories, or refuses to; it has no packages. */
async function registryThatGives(advisories: Record<string, unknown[]> | null): Promise<string> {
  registry = createServer((request, response) => {
    const asked = request.url?.endsWith('/advisories/bulk') && advisories !== null;
    request
      .resume()
      .on('end', () =>
        response
          .writeHead(asked ? 200 : 404, { 'content-type': 'application/json' })
          .end(JSON.stringify(asked ? advisories : {})),
      );
  });
  await once(registry.listen(0, '127.0.0.1'), 'listening');
  const address = registry.address();
  if (typeof address !== 'object' || !address) throw new Error('the registry has no port');
  return `http://127.0.0.1:${address.port}`;
}

test('the npm vulnerability check fails on an advisory on a locked package, and names it once with its range and address', async () => {
  const url = await registryThatGives({ hono: [advisory('GHSA-0000-0000-0000', '<99')], esbuild: [ACCEPTED_ONE] });
  expect(await npmVulnerabilities(signal, url)).toEqual({
    result: 'failed',
    summary: '1 open advisories',
    details: ['hono <99: high, it answers anyone (https://github.com/advisories/GHSA-0000-0000-0000)'],
  });
});

test('the npm vulnerability check passes with an advisory that was accepted with a reason, and counts it', async () => {
  const url = await registryThatGives({ esbuild: [ACCEPTED_ONE] });
  expect(await npmVulnerabilities(signal, url)).toEqual({
    result: 'passed',
    summary: 'no advisory is open (1 accepted: cli/checks/vulnerabilities/accepted.ts)',
  });
});

test('the npm vulnerability check says that it checked nothing, and why, when the registry gives no advisories or no answer', async () => {
  const url = await registryThatGives(null);
  expect(await npmVulnerabilities(signal, url)).toMatchObject({
    result: 'not checked',
    summary: expect.stringContaining('the npm registry gives no advisories here: 404'),
  });
  registry?.close();
  expect(await npmVulnerabilities(signal, url)).toMatchObject({
    result: 'not checked',
    summary: expect.stringContaining('ECONNREFUSED'),
  });
});
