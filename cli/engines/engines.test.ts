import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, expect, test } from 'vitest';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { ADMIN_KEY, ASK, eventually, useGateway } from '../../tests/support/harness/gateways.ts';
import { EXIT } from '../exit.ts';
import { INSTALLS } from '../folders.ts';

const gateway = useGateway();
const home = mkdtempSync(join(tmpdir(), 'trialgate-engines-'));
afterAll(() => rmSync(home, { recursive: true }));

/** Runs `trialgate engine …` for these gateways. */
const engine = async (args: string[], ...gateways: string[]) => {
  const env = {
    PATH: process.env['PATH'],
    TRIALGATE_HOME: home,
    TRIALGATE_ADMIN_KEY: ADMIN_KEY,
    TRIALGATE_GATEWAY_URL: gateways.join(',') || gateway.gateway.url,
  };
  const ran = promisify(execFile)(process.execPath, [INSTALLS.main, 'engine', ...args], { env, cwd: home });
  return ran.then(
    ({ stdout, stderr }) => ({ code: EXIT.done as number, stdout, stderr }),
    ({ code, stdout, stderr }: { code: number; stdout: string; stderr: string }) => ({ code, stdout, stderr }),
  );
};

test('`engine join`, `drain --wait`, `list` and `leave` change the engines of a gateway that runs, and say what happened', async () => {
  const second = await new FakeEngine().start();
  try {
    expect((await engine(['join', second.url])).stdout).toBe(`${second.url} gets calls\n`);
    await engine(['drain', gateway.engine.url]);
    const held = Promise.withResolvers<void>();
    second.beforeEnd = () => held.promise;
    const underWay = (await gateway.trial()).chat(ASK);
    await eventually(() => second.seen.length === 1);
    const { stdout: listed } = await engine(['list']);
    expect(listed).toMatch(new RegExp(`${second.url} +hand +serving +– +– +1\n`));
    expect(listed).toMatch(new RegExp(`${gateway.engine.url} +list +draining, by hand +– +– +0\n`));
    let hasEnded = false;
    const gateways = [gateway.gateway.url, 'http://127.0.0.1:9'];
    const drained = engine(['drain', `${second.url}/`, '--wait'], ...gateways).finally(() => (hasEnded = true));
    await eventually(async () =>
      (await engine(['list'])).stdout.includes(`${second.url}  hand      draining, by hand`),
    );
    // The command polls several times meanwhile.
    await sleep(1500);
    expect(hasEnded).toBe(false);
    held.resolve();
    expect((await underWay).status).toBe(200);
    const { stdout, stderr } = await drained;
    expect(stdout).toBe(`${second.url} gets no new calls; 1 calls are under way there\n${second.url} has no calls\n`);
    expect(stderr.match(/WARNING: the gateway http:\/\/127\.0\.0\.1:9 does not answer/g)).toHaveLength(1);
    expect((await engine(['leave', second.url])).stdout).toBe(
      `${second.url} is no engine of the deployment any more\n`,
    );
    const { engines } = JSON.parse((await engine(['list', '--json'])).stdout);
    expect(engines).toMatchObject([{ url: gateway.engine.url, state: 'draining' }]);
  } finally {
    await second.stop();
  }
});

test('`engine` prints the reason of a refusal, and the URL of a gateway that does not answer', async () => {
  expect(await engine(['leave', gateway.engine.url])).toMatchObject({
    code: EXIT.badInput,
    stderr: expect.stringContaining('the list of `--engine` names it'),
  });
  expect(await engine(['list'], gateway.gateway.url, 'http://127.0.0.1:9')).toMatchObject({
    code: EXIT.done,
    stderr: expect.stringContaining('the gateway http://127.0.0.1:9 does not answer'),
  });
  expect(await engine(['list'], 'http://127.0.0.1:9')).toMatchObject({
    code: EXIT.missingPrerequisite,
    stderr: expect.stringContaining('does not answer: start it, or name another with --gateway-url'),
  });
});
