import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { freePort } from '../../core/free-port.ts';
import { ADMIN_KEY } from '../../tests/support/harness/gateways.ts';
import { noPrometheus, prometheusProgram } from '../../tests/support/harness/prometheus.ts';
import { useSharedToyGateway } from '../../tests/support/harness/token-gateway.ts';
import { until } from '../../tests/support/harness/until.ts';

const here = import.meta.dirname;
const run = promisify(execFile);
const signal = AbortSignal.timeout(240_000);

const board = z
  .object({ panels: z.array(z.object({ title: z.string(), targets: z.array(z.object({ expr: z.string() })) })) })
  .parse(JSON.parse(readFileSync(join(here, 'board.json'), 'utf8')));
const asked = board.panels.flatMap(({ title, targets }) => targets.map(({ expr }): [string, string] => [title, expr]));

const answer = z.object({ status: z.literal('success'), data: z.object({ result: z.array(z.unknown()) }) });

describe.skipIf(noPrometheus() !== null)('of Prometheus', () => {
  const gateway = useSharedToyGateway();
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-prometheus-'));
  let url = '';
  let end = async (): Promise<void> => {};

  beforeEach(async () => {
    if (url !== '') return;
    const program = await prometheusProgram('prometheus', signal);
    const port = await freePort('127.0.0.1');
    writeFileSync(join(folder, 'key'), ADMIN_KEY);
    const scraped = new URL(gateway.gateway.url).host;
    writeFileSync(
      join(folder, 'prometheus.yml'),
      `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [${join(here, 'rules.yaml')}]
scrape_configs:
  - job_name: trialgate
    authorization: {credentials_file: ${join(folder, 'key')}}
    static_configs: [{targets: ['${scraped}']}]
`,
    );
    const server = spawn(
      program,
      [
        `--config.file=${join(folder, 'prometheus.yml')}`,
        `--storage.tsdb.path=${join(folder, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ],
      { stdio: 'ignore' },
    );
    const ended = once(server, 'exit');
    end = async () => {
      server.kill('SIGTERM');
      await ended;
    };
    url = `http://127.0.0.1:${port}`;
    await until(async () => (await fetch(`${url}/-/ready`).catch(() => null))?.ok === true, 60_000);
  });

  afterAll(async () => {
    await end();
    rmSync(folder, { recursive: true, force: true });
  });

  const ask = async (expr: string): Promise<unknown[]> => {
    const reply = await fetch(`${url}/api/v1/query?${new URLSearchParams({ query: expr }).toString()}`);
    return answer.parse(await reply.json()).data.result;
  };

  test('promtool accepts the alert rules, and each alert fires on what it watches for and not before', async () => {
    const promtool = await prometheusProgram('promtool', signal);
    await run(promtool, ['check', 'rules', join(here, 'rules.yaml')]);
    await run(promtool, ['test', 'rules', join(here, 'rules.test.yaml')]);
    const alerts = readFileSync(join(here, 'rules.yaml'), 'utf8').match(/(?<=alert: )\w+/g) ?? [];
    const tested = readFileSync(join(here, 'rules.test.yaml'), 'utf8');
    expect(alerts.length).toBeGreaterThan(0);
    expect(alerts.filter((alert) => !tested.includes(`alertname: ${alert}\n`))).toEqual([]);
  });

  test('a Prometheus reads a gateway’s metrics with the admin key in a file, and no alert fires on a healthy one', async () => {
    const trial = await gateway.trial();
    await trial.chat({ messages: [{ role: 'user', content: 'x' }] });
    await until(
      async () => (await ask('trialgate_calls_total{job="trialgate",status="completed"} > 0')).length > 0,
      60_000,
    );
    expect(await ask('up{job="trialgate"} == 1')).toHaveLength(1);
    expect(await ask('ALERTS')).toEqual([]);
  });

  test.each(asked)('Prometheus answers what the panel "%s" asks', async (_, expr) => {
    // Grafana puts its own values in these places.
    await ask(expr.replaceAll('$instance', '.*').replaceAll('$__rate_interval', '1m'));
    expect(expr).not.toMatch(/\$(?!instance|__rate_interval)/);
  });
});
