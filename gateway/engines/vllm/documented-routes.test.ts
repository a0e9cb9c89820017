import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../../core/repository.ts';
import { isRelayedToVllm } from './relayed-routes.ts';

const read = (file: string): string => readFileSync(join(REPOSITORY, file), 'utf8');

/** All that asks an engine, and names its routes. */
const ASKING = [
  ...globSync('gateway/engines/vllm/*.ts', { cwd: REPOSITORY }).filter((file) => !file.endsWith('.test.ts')),
  'gateway/engines/completion.ts',
  'core/weight-info.ts',
  'gpu-workers/trialgate_gpu/vllm_engine.py',
  'gpu-workers/trialgate_gpu/engine.py',
];
/** A route of relay workers, and the base path of routes. */
const OF_NO_ENGINE = ['/trialgate/checkpoint', '/v1'];
/** A transfer goes from the publisher to the engine alone, and SGLang has the last one. */
const NOT_RELAYED = [
  '/get_world_size',
  '/init_weight_transfer_engine',
  '/start_weight_update',
  '/update_weights',
  '/finish_weight_update',
  '/shutdown_weight_transfer_engine',
  '/model_info',
];

const [, table = ''] =
  /<!-- begin: routes of vLLM -->([^]*?)<!-- end: routes of vLLM -->/.exec(read('docs/gateway.md')) ?? [];
const documented = [...table.matchAll(/^\| (.*?) \|/gm)].flatMap(([, routes = '']) =>
  [...routes.matchAll(/`(GET|POST) (\/[\w/]+)/g)].map(([, method = '', path = '']) => ({ method, path })),
);
const pathsOf = (routes: { path: string }[]): string[] => routes.map(({ path }) => path).toSorted();

test('the table of docs/gateway.md has each route that the gateway and the publisher ask of a vLLM, and no other', () => {
  const asked = ASKING.flatMap((file) =>
    [...read(file).matchAll(/['"`](\/[a-z0-9_/]+)['"`]/g)].map(([, path = '']) => path),
  );
  const routes = new Set(asked.filter((path) => !OF_NO_ENGINE.includes(path)));
  expect(pathsOf(documented)).toEqual([...routes].toSorted());
});

test('a relay worker passes on each route of that table with its method, except those of a transfer', () => {
  const load = JSON.stringify({ method: 'reload_weights', kwargs: { weights_path: '/a' } });
  const passedOn = documented.filter(({ method, path }) =>
    isRelayedToVllm(method === 'GET' ? 'GET' : 'POST', path, load),
  );
  expect(pathsOf(documented.filter((route) => !passedOn.includes(route)))).toEqual(NOT_RELAYED.toSorted());
});
