import Docker from 'dockerode';
import { DEFAULT_POD_IMAGE } from '../../../core/run-config/sandbox.ts';
import { KubernetesCluster, makeNodeImage } from '../fakes/kubernetes-cluster.ts';
import { startPodman, type Podman } from './podman.ts';

/** A cluster of one node, which runs pods in a podman of its own. */
export type Kubernetes = {
  cluster: KubernetesCluster;
  podman: Podman;
  docker: Docker;
  kubeconfig: string;
} & AsyncDisposable;

export async function startKubernetes(signal: AbortSignal): Promise<Kubernetes> {
  await using stack = new AsyncDisposableStack();
  const podman = stack.use(await startPodman(signal));
  const docker = new Docker({ socketPath: podman.host.replace('unix://', '') });
  const images = { [DEFAULT_POD_IMAGE]: await makeNodeImage(docker) };
  const cluster = stack.use(new KubernetesCluster({ docker, images }));
  const kubeconfig = await cluster.start();
  const started = stack.move();
  return { cluster, podman, docker, kubeconfig, [Symbol.asyncDispose]: () => started.disposeAsync() };
}
