import { execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Duplex, PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { V1Container, V1NetworkPolicy, V1ObjectMeta, V1Pod, V1PodSpec } from '@kubernetes/client-node';
import type Docker from 'dockerode';
import { WebSocketServer, type WebSocket } from 'ws';
import { z } from 'zod';
import { json } from './engine-server.ts';

type Options = { docker: Docker; images: Record<string, string> };
/** A pod of the cluster and the containers that podman has for it. */
type Running = {
  pod: V1Pod;
  containers: Map<string, Docker.Container>;
  folder: string;
  deadline: NodeJS.Timeout | null;
  /** Resolves when its containers are started. */
  starting: Promise<void>;
};
type Verb = `${'get' | 'list' | 'create' | 'delete'} ${string}`;

const TOKEN = 'token-of-the-test';
const schemas = JSON.parse(readFileSync(new URL('./kubernetes-schemas.json', import.meta.url), 'utf8'));
const schemaOf = (name: string) => z.fromJSONSchema({ ...schemas, $ref: `#/$defs/${name}` });
const SCHEMAS = {
  pods: schemaOf('io.k8s.api.core.v1.Pod'),
  networkpolicies: schemaOf('io.k8s.api.networking.v1.NetworkPolicy'),
};

/**
 * An API server and one node of Kubernetes, as far as sandboxes use them: pods, `exec` and `attach` over WebSocket, network policies. What is
 * written is checked against Kubernetes' own schemas, and unknown fields are refused. The node runs pods in podman. It has two networks: none, for pods
 * that a policy closes, and the host's.
 */
export class KubernetesCluster implements AsyncDisposable {
  /** The verbs and resources that the client's account may not use, such as `create pods/exec`. */
  readonly forbidden = new Set<Verb>();
  /** False: its network plugin ignores network policies. */
  enforcesPolicies = true;
  /** The reason why no node takes a pod; null when a node does. */
  unschedulable: string | null = null;
  /** The images that the node has, by the names that pods use. */
  readonly images: Map<string, string>;
  readonly #docker: Docker;
  readonly #folder = mkdtempSync(join(tmpdir(), 'kubernetes-'));
  readonly #pods = new Map<string, Running>();
  readonly #policies: V1NetworkPolicy[] = [];
  readonly #sockets = new WebSocketServer({ noServer: true, handleProtocols: (offered) => protocolOf(offered) });
  readonly #server = createServer((request, response) => {
    void this.#respond(request, response).catch((error: unknown) => refuse(response, 500, String(error)));
  });

  constructor({ docker, images }: Options) {
    this.#docker = docker;
    this.images = new Map(Object.entries(images));
    this.#server.on('upgrade', (request, socket, head) => void this.#upgrade(request, socket, head));
  }

  /** Starts to listen, and returns the path of a kubeconfig. */
  async start(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    const file = join(this.#folder, 'kubeconfig');
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [
        { name: 'c', cluster: { server: `http://127.0.0.1:${this.#port}`, 'insecure-skip-tls-verify': true } },
      ],
      users: [{ name: 'u', user: { token: TOKEN } }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u', namespace: 'sandboxes' } }],
      'current-context': 'x',
    };
    writeFileSync(file, JSON.stringify(config));
    return file;
  }

  get pods(): V1Pod[] {
    return [...this.#pods.values()].map(({ pod }) => pod);
  }

  get policies(): V1NetworkPolicy[] {
    return this.#policies;
  }

  get #port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** Makes a pod that was there before, as one that another worker left. */
  async createAgain(pod: unknown): Promise<void> {
    if (!SCHEMAS.pods.safeParse(pod).success) throw new Error('it is no pod');
    await this.#createPod(pod as V1Pod);
  }

  /** Returns what is wrong with an object that is written; null when it is as Kubernetes' schemas say. */
  faultsOf(resource: keyof typeof SCHEMAS, body: unknown): string | null {
    const checked = SCHEMAS[resource].safeParse(body);
    return checked.success ? (wrongNames(body) ?? wrongUser(body)) : z.prettifyError(checked.error);
  }

  /** Ends a pod as the node does when it needs what the pod uses. */
  async evict(name: string, message: string): Promise<void> {
    const running = this.#pods.get(name);
    if (!running) return;
    await this.#kill(running);
    // The node first reports the ends of the containers, and then why.
    await this.#look(running);
    await sleep(500);
    await this.#fail(running, 'Evicted', message);
  }

  /** Ends the containers of a pod that somebody deletes, which is then gone a moment later. */
  async delete(name: string): Promise<void> {
    const running = this.#pods.get(name);
    if (!running?.pod.metadata) return;
    running.pod.metadata.deletionTimestamp = new Date();
    await this.#kill(running);
    await this.#look(running);
    await sleep(1000);
    await this.#remove(name);
  }

  /** Ends the server. Its pods run on. */
  async stop(): Promise<void> {
    for (const client of this.#sockets.clients) client.terminate();
    this.#server.closeAllConnections();
    if (this.#server.listening) await new Promise((resolve) => this.#server.close(resolve));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    for (const name of this.#pods.keys()) await this.#remove(name);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET' } = request;
    const url = new URL(request.url ?? '', 'http://kubernetes');
    const found =
      /^\/(?:api\/v1|apis\/networking\.k8s\.io\/v1)\/namespaces\/(sandboxes|others)\/(pods|networkpolicies)(?:\/([^/]+))?$/.exec(
        url.pathname,
      );
    if (request.headers.authorization !== `Bearer ${TOKEN}`) return refuse(response, 401, 'Unauthorized');
    if (!found) return refuse(response, 404, 'the server could not find the requested resource');
    const [, namespace = '', resource, name] = found;
    if (resource !== 'pods' && resource !== 'networkpolicies') return;
    const verb = { POST: 'create', DELETE: 'delete' }[method] ?? (name === undefined ? 'list' : 'get');
    if (this.#refusal(`${verb} ${resource}`)) return refuse(response, 403, this.#refusal(`${verb} ${resource}`) ?? '');
    const known: Map<string, { metadata?: V1ObjectMeta }> =
      resource === 'pods'
        ? new Map([...this.#pods].map(([each, { pod }]) => [each, pod]))
        : new Map(this.#policies.map((policy) => [nameOf(policy), policy]));
    for (const [each, { metadata }] of known) if (metadata?.namespace !== namespace) known.delete(each);
    if (verb === 'create') {
      const body: unknown = JSON.parse(await text(request));
      const wrong = this.faultsOf(resource, body);
      if (wrong !== null) return refuse(response, 422, `${resource} is invalid: ${wrong}`);
      const given = nameOf(body);
      if (known.has(given)) return refuse(response, 409, `${resource} "${given}" already exists`);
      const made = body as V1Pod | V1NetworkPolicy;
      made.metadata = { ...made.metadata, namespace, uid: randomUUID() };
      if (resource === 'pods') await this.#createPod(made as V1Pod);
      else this.#policies.push(made as V1NetworkPolicy);
      return json(response, body, 201);
    }
    if (verb === 'list') {
      const [label = '', value] = (url.searchParams.get('labelSelector') ?? '').split('=');
      const items = this.pods.filter(
        ({ metadata }) => metadata?.namespace === namespace && metadata.labels?.[label] === value,
      );
      return json(response, { kind: 'PodList', apiVersion: 'v1', metadata: {}, items });
    }
    if (name === undefined || !known.has(name)) return refuse(response, 404, `${resource} "${name}" not found`);
    const pod = this.#pods.get(name);
    if (verb === 'delete') {
      await this.#remove(name);
      return json(response, { kind: 'Status', apiVersion: 'v1', status: 'Success' });
    }
    if (pod && resource === 'pods') await this.#look(pod);
    return json(response, resource === 'pods' ? pod?.pod : known.get(name));
  }

  #refusal(what: string): string | null {
    if (![...this.forbidden].some((verb) => verb === what)) return null;
    const [verb = '', resource = ''] = what.split(' ');
    return `${resource} is forbidden: User "worker" cannot ${verb} resource "${resource}" in API group "" in the namespace "sandboxes"`;
  }

  async #createPod(pod: V1Pod): Promise<void> {
    const { spec } = pod;
    if (!spec) throw new Error('a pod has no spec');
    const name = nameOf(pod);
    const folder = join(this.#folder, randomUUID());
    const running: Running = { pod, containers: new Map(), folder, deadline: null, starting: Promise.resolve() };
    this.#pods.set(name, running);
    pod.status = { phase: 'Pending', conditions: [] };
    if (this.unschedulable !== null) {
      const message = this.unschedulable;
      pod.status.conditions = [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message }];
      return;
    }
    running.starting = this.#startPod(running, spec).catch((error: unknown) =>
      this.#fail(running, 'Error', String(error)),
    );
  }

  async #startPod(running: Running, spec: V1PodSpec): Promise<void> {
    const docker = this.#docker;
    const { folder, pod, containers } = running;
    mkdirSync(folder);
    const absent = spec.containers.find(({ image = '' }) => !this.images.has(image));
    if (absent) {
      pod.status = {
        phase: 'Pending',
        containerStatuses: spec.containers.map(({ name, image = '' }) => ({
          ...{ name, image, imageID: '', ready: false, restartCount: 0 },
          state: {
            waiting:
              image === absent.image
                ? {
                    reason: 'ErrImagePull',
                    message: `rpc error: code = NotFound desc = failed to pull and unpack image "${image}": ${image}: not found`,
                  }
                : { reason: 'ContainerCreating' },
          },
        })),
      };
      return;
    }
    const isClosed = this.enforcesPolicies && this.policies.some((policy) => closes(policy, pod));
    // A network without any way answers on its own loopback, where nothing listens.
    const api = isClosed ? '192.0.2.1' : '127.0.0.1';
    const [first = ''] = this.images.values();
    const pause = await docker.createContainer({
      Image: first,
      Entrypoint: ['sleep'],
      Cmd: ['infinity'],
      HostConfig: { NetworkMode: isClosed ? 'none' : 'host' },
    });
    if (!this.#pods.has(nameOf(pod))) return void (await pause.remove({ force: true }));
    containers.set('', pause);
    await pause.start();
    for (const container of spec.containers) {
      const made = await docker.createContainer(this.#optionsOf(running, spec, container, { pause: pause.id, api }));
      if (!this.#pods.has(nameOf(pod))) return void (await made.remove({ force: true }));
      containers.set(container.name, made);
      await made.start();
    }
    if (spec.activeDeadlineSeconds !== undefined)
      running.deadline = setTimeout(
        () =>
          void this.#fail(running, 'DeadlineExceeded', 'Pod was active on the node longer than the specified deadline'),
        spec.activeDeadlineSeconds * 1000,
      ).unref();
  }

  #optionsOf(
    { folder }: Running,
    spec: V1PodSpec,
    { image = '', command = [], stdin, volumeMounts = [], resources, securityContext }: V1Container,
    { pause, api }: { pause: string; api: string },
  ): Docker.ContainerCreateOptions {
    const { runAsUser, runAsGroup } = spec.securityContext ?? {};
    const isInMemory = (name: string): boolean =>
      spec.volumes?.find((volume) => volume.name === name)?.emptyDir?.medium === 'Memory';
    for (const { name } of volumeMounts) {
      const path = join(folder, name);
      if (!existsSync(path)) mkdirSync(path);
      // As the node makes the folder of an emptyDir.
      chmodSync(path, 0o777);
    }
    const memory = bytesOf(resources?.limits?.['memory'] ?? '512Mi');
    // As the node writes it for each pod.
    const aliases = (spec.hostAliases ?? []).map(({ ip, hostnames = [] }) => `${ip} ${hostnames.join(' ')}\n`);
    const hosts = join(folder, 'etc-hosts');
    writeFileSync(hosts, `127.0.0.1 localhost\n${aliases.join('')}`);
    return {
      Image: this.images.get(image) ?? '',
      Entrypoint: command.slice(0, 1),
      Cmd: command.slice(1),
      User: `${runAsUser}:${runAsGroup}`,
      Env: [`KUBERNETES_SERVICE_HOST=${api}`, `KUBERNETES_SERVICE_PORT=${this.#port}`],
      OpenStdin: stdin ?? false,
      HostConfig: {
        NetworkMode: `container:${pause}`,
        ReadonlyRootfs: securityContext?.readOnlyRootFilesystem ?? false,
        CapDrop: securityContext?.capabilities?.drop ?? [],
        SecurityOpt: securityContext?.allowPrivilegeEscalation === false ? ['no-new-privileges'] : [],
        Memory: memory,
        MemorySwap: memory,
        NanoCpus: Math.round(coresOf(resources?.limits?.['cpu'] ?? '1') * 1e9),
        PidsLimit: 1024,
        Tmpfs: Object.fromEntries(
          volumeMounts.filter(({ name }) => isInMemory(name)).map(({ mountPath }) => [mountPath, 'mode=1777']),
        ),
        Mounts: [
          { Type: 'bind', Source: hosts, Target: '/etc/hosts', ReadOnly: false },
          ...volumeMounts
            .filter(({ name }) => !isInMemory(name))
            .map(({ name, mountPath, readOnly = false }) => ({
              Type: 'bind' as const,
              Source: join(folder, name),
              Target: mountPath,
              ReadOnly: readOnly,
            })),
        ],
      },
    };
  }

  /** Brings a pod's status up to date. */
  async #look({ pod, containers }: Running): Promise<void> {
    if (containers.size <= (pod.spec?.containers.length ?? 0) || pod.status?.phase === 'Failed') return;
    const containerStatuses = await Promise.all(
      (pod.spec?.containers ?? []).map(async ({ name, image = '' }) => {
        const inspected = await containers
          .get(name)
          ?.inspect()
          .catch(() => null);
        const state = inspected?.State;
        const common = {
          name,
          image,
          imageID: inspected?.Image ?? '',
          restartCount: 0,
          ready: state?.Running ?? false,
        };
        if (!state || state.Status === 'created' || state.Status === 'initialized')
          return { ...common, state: { waiting: { reason: 'ContainerCreating' } } };
        if (state.Running || state.Status === 'stopping') return { ...common, state: { running: {} } };
        const reason = state.OOMKilled ? 'OOMKilled' : state.ExitCode === 0 ? 'Completed' : 'Error';
        return { ...common, state: { terminated: { exitCode: state.ExitCode, reason } } };
      }),
    );
    if (pod.status?.phase === 'Failed') return;
    pod.status = { phase: 'Running', containerStatuses };
  }

  async #kill({ containers }: Running): Promise<void> {
    for (const container of containers.values()) await container.kill().catch(() => {});
  }

  /** A node keeps how the containers of such a pod have ended. */
  async #fail(running: Running, reason: string, message: string): Promise<void> {
    await this.#kill(running);
    await this.#look(running);
    const { pod } = running;
    pod.status = { ...pod.status, phase: 'Failed', reason, message };
  }

  async #remove(name: string): Promise<void> {
    const running = this.#pods.get(name);
    if (!running) return;
    // podman would leave the program of a container that is removed while it starts.
    await running.starting;
    if (running.deadline) clearTimeout(running.deadline);
    // The pod's network is that of its first container.
    for (const container of [...running.containers.values()].toReversed())
      await container.remove({ force: true, v: true }).catch(() => {});
    rmSync(running.folder, { recursive: true, force: true });
    this.#pods.delete(name);
  }

  async #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const url = new URL(request.url ?? '', 'http://kubernetes');
    const [, name = '', verb = ''] =
      /^\/api\/v1\/namespaces\/(?:sandboxes|others)\/pods\/([^/]+)\/(exec|attach)$/.exec(url.pathname) ?? [];
    const container = this.#pods.get(name)?.containers.get(url.searchParams.get('container') ?? '');
    const isAllowed = request.headers.authorization === `Bearer ${TOKEN}`;
    const status = !isAllowed ? 401 : this.#refusal(`create pods/${verb}`) ? 403 : container ? 101 : 404;
    if (status !== 101 || !container) {
      socket.end(`HTTP/1.1 ${status} Refused\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`);
      return;
    }
    this.#sockets.handleUpgrade(request, socket, head, (client) => {
      const command = verb === 'exec' ? url.searchParams.getAll('command') : null;
      void this.#join(client, container, command).catch((error: unknown) =>
        end(client, { status: 'Failure', message: String(error), reason: 'InternalError' }),
      );
    });
  }

  async #join(client: WebSocket, container: Docker.Container, command: string[] | null): Promise<void> {
    const early: Buffer[] = [];
    let input: Duplex | null = null;
    client.on('message', (message: Buffer) => {
      if (message[0] === 255) return void input?.end();
      if (message[0] !== 0) return;
      if (input) input.write(message.subarray(1));
      else early.push(message.subarray(1));
    });
    const exec =
      command && (await container.exec({ Cmd: command, AttachStdin: true, AttachStdout: true, AttachStderr: true }));
    const stream = exec
      ? await exec.start({ hijack: true, stdin: true })
      : await container.attach({ stream: true, hijack: true, stdin: true, stdout: true, stderr: true });
    if (!(stream instanceof Duplex)) throw new Error('podman gave no connection');
    stream.on('error', () => {});
    for (const data of early) stream.write(data);
    input = stream;
    client.on('close', () => stream.destroy());
    const outputs = [new PassThrough(), new PassThrough()] as const;
    this.#docker.modem.demuxStream(stream, ...outputs);
    outputs.forEach((output, index) =>
      output.on('data', (data: Buffer) => {
        client.send(Buffer.concat([Buffer.of(index + 1), data]), () => stream.resume());
        if (client.bufferedAmount > 2 ** 22) stream.pause();
      }),
    );
    await Promise.race([once(stream, 'end'), once(stream, 'close')]);
    const exitCode = exec ? await exitCodeOf(exec) : (await container.inspect()).State.ExitCode;
    if (exitCode === 0) return end(client, { status: 'Success' });
    const causes = [{ reason: 'ExitCode', message: `${exitCode}` }];
    end(client, {
      status: 'Failure',
      reason: 'NonZeroExitCode',
      message: `command terminated with non-zero exit code ${exitCode}`,
      details: { causes },
    });
  }
}

async function exitCodeOf(exec: Docker.Exec): Promise<number> {
  for (;;) {
    const { Running, ExitCode } = await exec.inspect();
    if (!Running) return ExitCode ?? -1;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function end(client: WebSocket, status: object): void {
  client.send(
    Buffer.concat([Buffer.of(3), Buffer.from(JSON.stringify({ kind: 'Status', apiVersion: 'v1', ...status }))]),
  );
  client.close();
}

const protocolOf = (offered: Set<string>): string | false =>
  ['v5.channel.k8s.io', 'v4.channel.k8s.io'].find((name) => offered.has(name)) ?? false;

const refuse = (response: ServerResponse, code: number, message: string): void =>
  json(response, { kind: 'Status', apiVersion: 'v1', status: 'Failure', message, code }, code);

const named = z.object({
  metadata: z.object({
    name: z.string(),
    labels: z.record(z.string(), z.string()).nullish(),
    annotations: z.record(z.string(), z.string()).nullish(),
  }),
});
const nameOf = (body: unknown): string => named.parse(body).metadata.name;

/** Names and labels have rules that are not in the schemas. */
function wrongNames(body: unknown): string | null {
  const { name, labels } = named.parse(body).metadata;
  if (!/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/.test(name)) return `metadata.name: ${name}`;
  const wrong = Object.values(labels ?? {}).find((value) => !/^([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?$/.test(value));
  return wrong === undefined ? null : `metadata.labels: ${wrong}`;
}

const withUser = z.object({
  spec: z
    .object({
      hostUsers: z.boolean().optional(),
      securityContext: z
        .object({
          runAsUser: z.number().optional(),
          runAsGroup: z.number().optional(),
          fsGroup: z.number().optional(),
        })
        .optional(),
    })
    .optional(),
});

/** A pod with a user namespace of its own has only these ids, which a node finds out when it starts the pod. */
function wrongUser(body: unknown): string | null {
  const { hostUsers = true, securityContext = {} } = withUser.parse(body).spec ?? {};
  const isWrong = !hostUsers && Object.values(securityContext).some((id) => id > 65_535);
  return isWrong ? 'spec.hostUsers: the ids of its user namespace end at 65535' : null;
}

/** Returns whether a policy lets nothing in or out of a pod. */
function closes({ spec, metadata: own }: V1NetworkPolicy, { metadata }: V1Pod): boolean {
  const expressions = spec?.podSelector?.matchExpressions ?? [];
  return (
    own?.namespace === metadata?.namespace &&
    expressions.every(({ key, operator }) => operator === 'Exists' && metadata?.labels?.[key] !== undefined) &&
    (spec?.policyTypes ?? []).length === 2 &&
    !spec?.egress?.length &&
    !spec?.ingress?.length
  );
}

function bytesOf(quantity: string): number {
  const [, number = '', unit = ''] = /^(\d+)(Mi|Gi)$/.exec(quantity) ?? [];
  const factor = { Mi: 2 ** 20, Gi: 2 ** 30 }[unit];
  if (factor === undefined) throw new Error(`the node does not know the quantity ${quantity}`);
  return Number(number) * factor;
}

const coresOf = (quantity: string): number =>
  quantity.endsWith('m') ? Number(quantity.slice(0, -1)) / 1000 : Number(quantity);

/** The programs of the node's image. */
const TOOLS = [
  ...[
    'sh',
    'bash',
    'python3',
    'tar',
    'find',
    'grep',
    'env',
    'cat',
    'ls',
    'id',
    'mount',
    'touch',
    'chmod',
    'setsid',
    'sleep',
  ],
  ...[
    'seq',
    'head',
    'yes',
    'cut',
    'sort',
    'tr',
    'mkdir',
    'mkfifo',
    'ln',
    'cp',
    'rm',
    'timeout',
    'sha256sum',
    'wc',
    'split',
  ],
];

/** Makes an image of this machine's own programs, as `python:3.12-slim` has them, and returns its name. */
export async function makeNodeImage(docker: Docker): Promise<string> {
  const programs = TOOLS.map((tool) => join('/usr/bin', tool));
  const python = realpathSync('/usr/bin/python3');
  const library = join('/usr/lib', python.slice('/usr/bin/'.length));
  const modules = execFileSync('find', [join(library, 'lib-dynload'), '-name', '*.so'], { encoding: 'utf8' })
    .trim()
    .split('\n');
  const loaded = execFileSync('ldd', [...programs.map((path) => realpathSync(path)), ...modules], { encoding: 'utf8' });
  const libraries = [...loaded.matchAll(/(?:=> |^\t)(\/\S+) \(/gm)].map(([, path = '']) => path);
  const files = [
    ...programs,
    ...programs.map((path) => realpathSync(path)),
    library,
    ...libraries,
    ...libraries.map((path) => realpathSync(path)),
  ];
  const paths = new Set(['/bin', '/sbin', '/lib', '/lib64', '/etc/passwd', '/etc/group', '/etc/ld.so.cache', ...files]);
  const exclude = ['test', '__pycache__', 'idlelib', 'lib2to3', 'config-*'].map((name) => `--exclude=${name}`);
  // A path through /lib, which is a link, would make a folder of it.
  const listed = [...paths].map((path) => path.replace(/^\/(lib|lib64|bin)\//, '/usr/$1/').slice(1));
  const tar = spawn('tar', ['-c', '-C', '/', ...exclude, '-f', '-', ...new Set(listed)], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const reply = await text(await docker.importImage(tar.stdout));
  const { status: id } = z.object({ status: z.string() }).parse(JSON.parse(reply.trim().split('\n').at(-1) ?? '{}'));
  await docker.getImage(id).tag({ repo: 'localhost/trialgate-test-node', tag: '1' });
  return 'localhost/trialgate-test-node:1';
}
