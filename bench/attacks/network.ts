/**
 * Replays the findings A1 and A7 from inside real sandboxes, against a deployment of its own: an agent (as the worker runs it), a verifier and an
 * agent with `network: host` try Temporal, PostgreSQL, the gateway's admin routes, listeners of the host and of another trial (TCP, UDP, abstract
 * sockets), and a route to other hosts. It also loads a task from a sandbox that links to a file of root's.
 *
 *   node bench/attacks/network.ts
 *
 * Exits with 1 if an attack succeeded. It runs unchanged on commits from 2c7cc9f on, to show which attacks succeeded before.
 */
import { MockActivityEnvironment } from '@temporalio/testing';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Graders } from '../../activities/reward/graders.ts';
import { HostSandboxes } from '../../activities/sandbox/host-sandboxes.ts';
import { runAgent } from '../../activities/trial/run-agent.ts';
import { createSandbox } from '../../activities/sandbox/create-sandbox.ts';
import type { Sandbox } from '../../activities/sandbox/empty-sandbox.ts';
import { isolation } from '../../activities/sandbox/isolation.ts';
import { shell, taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { verify } from '../../activities/sandbox/verify.ts';
import { loadTask } from '../../activities/tasks/load-task.ts';
import { withDeployment, type DeploymentClients } from '../../cli/run/connect.ts';
import { shutdownSignal } from '../../cli/signals.ts';
import type { Stack } from '../../cli/supervisor/stack.ts';
import { withTemporaryStack } from '../../tests/support/harness/temporary-deployment.ts';
import { reportAttacks, type Attack } from './report.ts';
import { openBackend } from '../../activities/sandbox/backends.ts';

const backend = await openBackend();

const PROGRAM = await readFile(new URL('./network.py', import.meta.url), 'utf8');
const OUTSIDE = 'route outside';
const portOf = (address: string | AddressInfo | null): number =>
  typeof address === 'object' && address ? address.port : 0;

/** Listens on this host's loopback in each way that another process of the host could. */
async function hostListeners() {
  const tcp = createServer((socket) => void socket.on('error', () => {}).end());
  const udp = createSocket('udp4', (message, peer) => udp.send(message, peer.port, peer.address));
  const name = `trialgate-attack-${process.pid}`;
  const abstract = createServer();
  tcp.listen(0, '127.0.0.1');
  udp.bind(0, '127.0.0.1');
  abstract.listen(`\0${name}`);
  await Promise.all([tcp, udp, abstract].map((each) => once(each, 'listening')));
  const close = (): void => void [tcp, udp, abstract].forEach((each) => each.close());
  return { tcp: portOf(tcp.address()), udp: udp.address().port, abstract: name, close };
}

/** Runs another trial's agent, which listens in its own sandbox until it is aborted. */
async function otherTrial(home: string, task: Parameters<typeof createSandbox>[0]['task'], signal: AbortSignal) {
  const sandbox = await createSandbox({ backend, home, trialId: 'other', attempt: 1, task });
  const abstract = `trialgate-other-${process.pid}`;
  const script = `exec python3 -c '
import json, select, socket
t = socket.socket(); t.bind(("127.0.0.1", 0)); t.listen()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0))
a = socket.socket(socket.AF_UNIX); a.bind("\\0${abstract}"); a.listen()
open("ports.part", "w").write(json.dumps([t.getsockname()[1], u.getsockname()[1]]))
import os; os.rename("ports.part", "ports.json")
while True:
    for ready in select.select([t, u, a], [], [])[0]:
        if ready is u: data, peer = u.recvfrom(100); u.sendto(data, peer)
        else: ready.accept()[0].close()
'`;
  const ended = shell(await isolation(), sandbox, script, { signal, seconds: 120 });
  for (;;) {
    const ports = await readFile(join(sandbox.work, 'ports.json'), 'utf8').catch(() => null);
    if (ports === null)
      await Promise.race([
        new Promise((resolve) => setTimeout(resolve, 50)),
        ended.then(({ stderr }) => Promise.reject(new Error(stderr))),
      ]);
    else return { tcp: JSON.parse(ports)[0] as number, udp: JSON.parse(ports)[1] as number, abstract, ended };
  }
}

/** Starts a gateway that answers each chat with the attacker's program, as a model would. */
async function gatewayThatAnswers(code: () => string) {
  const server = createHttpServer((_, response) => {
    const content = `\`\`\`python\n${code()}\n\`\`\``;
    response.setHeader('content-type', 'application/json');
    response.end(
      JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }] }),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${portOf(server.address())}`,
    close: () => void server.close().closeAllConnections(),
  };
}

async function attack({ client, db }: DeploymentClients, { plan }: Stack, signal: AbortSignal): Promise<Attack[]> {
  await using folder = await temporaryHome();
  const [host, over] = [await hostListeners(), new AbortController()];
  const judge = 'cd "$WORK_DIR" && python3 solution.py; cat reached.json; echo 1 > "$LOGS_DIR/verifier/reward.txt"';
  const task = await taskWith(folder.home, judge, {
    'task.toml': '[verifier]\ntimeout_sec = 60\n',
    'environment/test_visible.py': 'import solution\n',
  });
  const other = await otherTrial(folder.home, task, AbortSignal.any([signal, over.signal]));
  const targets = (who: string) => ({
    output: 'reached.json',
    owned: {
      id: `owned-by-${who}`,
      request: { workflowType: { name: 'rolloutGroup' }, taskQueue: { name: 'trialgate' }, input: [{}] },
    },
    tcp: { temporal: plan.ports.temporal, postgres: plan.ports.postgres, host: host.tcp, 'other trial': other.tcp },
    udp: { host: host.udp, 'other trial': other.udp },
    abstract: { host: host.abstract, 'other trial': other.abstract },
  });
  const codeFor = (who: string): string =>
    PROGRAM.replace('json.loads(sys.argv[1])', `json.loads(${JSON.stringify(JSON.stringify(targets(who)))})`);
  let attacker = '';
  const gateway = await gatewayThatAnswers(() => codeFor(attacker));

  /** Returns the targets that an agent and then its verifier reached, in a trial whose run has this network setting. */
  const trial = async (
    network: 'gateway' | 'host',
  ): Promise<{ agent: string[]; verifier: string[]; sandbox: Sandbox }> => {
    const sandboxes = new HostSandboxes(folder.home, 1);
    attacker = `agent-${network}`;
    const key = { trialId: attacker, attempt: 1 };
    await sandboxes.open(key, { task, network, backend, image: null, verifier: null }, signal);
    const deps = {
      db,
      temporal: client,
      gatewayUrls: [gateway.url],
      home: folder.home,
      secret: plan.secret,
      hostQueue: 'host',
      sandboxes,
      graders: new Graders(folder.home),
    };
    await new MockActivityEnvironment().run(runAgent(deps), { ...key, agent: 'repair' });
    const result = await sandboxes.use(key, async ({ sandbox }) => {
      const agent = JSON.parse(await readFile(join(sandbox.work, 'reached.json'), 'utf8')) as string[];
      await writeFile(join(sandbox.work, 'solution.py'), codeFor(`verifier-${network}`));
      let stdout = '';
      await verify({
        task,
        sandbox,
        backend,
        signal,
        onOutput: (output) => (stdout = output.stdout),
      });
      return { agent, verifier: JSON.parse(stdout) as string[], sandbox };
    });
    await sandboxes.close(key);
    if (!result) throw new Error('the attacking trial lost its sandbox');
    return result;
  };

  /** Tries the admin routes of the real gateway through the base URL that an agent gets. */
  const adminRoutes = async (): Promise<number[]> => {
    const sandbox = await createSandbox({ backend, home: folder.home, trialId: 'admin', attempt: 1, task });
    const url = plan.gatewayUrls[0] ?? '';
    const ask = [
      'GET /sessions',
      'GET /sessions/export',
      ...['', '/complete', '/reward'].map((path) => `POST /sessions/other${path}`),
      'GET /sessions/other',
      'GET /sessions/other/samples',
      'DELETE /sessions/other',
    ];
    const script = ask
      .map((each) => each.split(' '))
      .map(([method, path]) => `curl -s -o /dev/null -w '%{http_code}\\n' -X ${method} ${url}${path}`);
    const { stdout } = await shell(await isolation(), sandbox, script.join('\n'), {
      network: { kind: 'gateway', url, folder: sandbox.root },
    });
    return stdout.trim().split('\n').map(Number);
  };

  const linkedTask = async (): Promise<boolean> => {
    const sandbox = await createSandbox({ backend, home: folder.home, trialId: 'linker', attempt: 1, task });
    const secret = join(folder.home, 'secret.txt');
    await writeFile(secret, 'a secret', { mode: 0o600 });
    const evil = join(sandbox.work, 'evil');
    await mkdir(evil);
    await cp(task.folder, evil, { recursive: true, filter: (path) => !path.endsWith('instruction.md') });
    await symlink(secret, join(evil, 'instruction.md'));
    return (await loadTask(evil).catch(() => null))?.instruction === 'a secret';
  };

  try {
    const confined = await trial('gateway');
    const statuses = await adminRoutes();
    const linked = await linkedTask();
    const open = await trial('host');
    const owned = (who: string): Promise<boolean> =>
      client.workflow
        .getHandle(targets(who).owned.id)
        .describe()
        .then(
          () => true,
          () => false,
        );
    const [byAgent, byVerifier, byHostAgent] = await Promise.all([
      owned('agent-gateway'),
      owned('verifier-gateway'),
      owned('agent-host'),
    ]);
    const row = (
      id: string,
      severity: Attack['severity'],
      attackName: string,
      got: readonly boolean[],
      note?: string,
    ): Attack => ({
      id,
      severity,
      attack: attackName,
      tried: got.length,
      held: got.filter((each) => !each).length,
      ...(note ? { note } : {}),
    });
    const both = (what: string): boolean[] => [confined.agent.includes(what), confined.verifier.includes(what)];
    const hasRoute = open.agent.includes(OUTSIDE);
    return [
      row('A1', 'critical', "start a workflow by Temporal's HTTP API (agent, verifier)", [byAgent, byVerifier]),
      row('A1', 'critical', "speak to Temporal's port", both('tcp temporal')),
      row('A1', 'critical', "have a task read that links to a file of root's, from a sandbox", [linked]),
      row('A1', 'high', "speak to PostgreSQL's port", both('tcp postgres')),
      row(
        'A1',
        'critical',
        'use an admin route of the gateway without its key',
        statuses.map((status) => status < 400 || status >= 500),
        statuses.join(' '),
      ),
      row(
        'A7',
        'high',
        'reach another trial by TCP, UDP, an abstract socket',
        ['tcp', 'udp', 'abstract'].flatMap((kind) => both(`${kind} other trial`)),
      ),
      row(
        'A7',
        'high',
        'reach a listener of the host by TCP, UDP, an abstract socket',
        ['tcp', 'udp', 'abstract'].flatMap((kind) => both(`${kind} host`)),
      ),
      row('A16', 'low', 'reach other hosts', both(OUTSIDE), hasRoute ? '' : 'this host has no route itself'),
      row('host', 'critical', "with `network: host`: start a workflow, speak to Temporal's port (agent)", [
        byHostAgent,
        open.agent.includes('tcp temporal'),
      ]),
      row(
        'host',
        'critical',
        'with `network: host`: speak to Temporal from the port of an allowed connection, with another address',
        [open.agent.includes('temporal as a worker')],
      ),
      row('host', 'high', 'with `network: host`: enter PostgreSQL without its password', [
        open.agent.includes('postgres entered'),
      ]),
      row('host', 'high', 'with `network: host`: the verifier reaches anything', [open.verifier.length > 0]),
    ];
  } finally {
    over.abort();
    await other.ended.catch(() => {});
    gateway.close();
    host.close();
  }
}

const signal = shutdownSignal();
const attacks = await withTemporaryStack(
  (stack) => withDeployment(stack.plan.config, (connected) => attack(connected, stack, signal)),
  signal,
  ['postgres', 'temporal', 'gateway'],
);
process.exitCode = reportAttacks(attacks);
