import type { FoundEngine } from '../../../../store/queries/register-replicas.ts';
import type { FoundBy } from '../../../../store/schema.ts';
import type { KubernetesOptions } from './kubernetes-api.ts';

/** The settings by which a gateway finds the deployment's engines. */
export type DiscoveryOptions = {
  /** The list of `--engine`, in which `relay` lets relay workers dial in. */
  engines: readonly string[];
  /** The path of a file with a list of engines. */
  enginesFile?: string | undefined;
  /** The engines in pods of Kubernetes. */
  enginesKubernetes?: KubernetesOptions | undefined;
};

/** All engines that are there now, or the reason why they cannot be found. Then the last ones stay. */
export type Finding = { engines: FoundEngine[] } | { failure: string };

/** A way to find the deployment's engines (service discovery). */
export type Discovery = {
  foundBy: FoundBy;
  /** Yields what it finds first, and again whenever that changes. Ends when `signal` aborts. Returns null when no setting asks for it. */
  watch: (options: DiscoveryOptions, signal: AbortSignal) => AsyncIterable<Finding> | null;
};

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
