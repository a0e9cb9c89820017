import { TrialgateError } from '../../core/errors.ts';
import { reachableAt } from '../../core/reachable-at.ts';
import { gatewayPorts, isGateway, LOOPBACK } from '../supervisor/gateways.ts';
import { readState, type StackState } from '../supervisor/state.ts';
import type { Deployment } from './schema.ts';
import { readSecrets } from './secrets.ts';

/** Addresses and keys of a deployment's parts. */
export type Connections = {
  databaseUrl: string;
  temporalAddress: string;
  /** The first of `gatewayUrls`. */
  gatewayUrl: string;
  gatewayUrls: string[];
  engines: string[];
  adminKey: string;
  secret: string;
};

/**
 * Returns where the parts are: as configured, else as the deployment's own supervisor recorded them (it chooses ports of 0).
 * Each is looked up when it is read, so that a verb needs only what it uses.
 * @throws TrialgateError `missing_prerequisite` when the deployment was never started.
 */
export function connectionsOf(config: Deployment): Connections {
  const state = readState(config.home);
  const secrets = readSecrets(config.home);
  return {
    get databaseUrl() {
      if (config.database_url) return config.database_url;
      const password = secrets?.postgres_password ?? missing('PostgreSQL', config);
      return `postgres://trialgate:${password}@${LOOPBACK}:${port(state, 'postgres', config)}/trialgate`;
    },
    get temporalAddress() {
      return config.temporal_address ?? `${LOOPBACK}:${port(state, 'temporal', config)}`;
    },
    get gatewayUrl() {
      return this.gatewayUrls[0] ?? missing('the gateway', config);
    },
    get gatewayUrls() {
      if (config.gateway_url) return config.gateway_url;
      const started = Object.entries(state?.ports ?? {}).flatMap(([name, each]) => (isGateway(name) ? [each] : []));
      const ports =
        started.length > 0
          ? started
          : gatewayPorts(config).map(({ name, wanted }) => wanted || missing(`${name}'s port`, config));
      return ports.map((each) => reachableAt(config.gateway_host, each));
    },
    get engines() {
      return config.engines.length ? config.engines : (state?.engines ?? []);
    },
    get adminKey() {
      return config.admin_key ?? secrets?.admin_key ?? missing('the admin key', config);
    },
    get secret() {
      return config.secret ?? secrets?.secret ?? missing('the secret', config);
    },
  };
}

function port(state: StackState | null, name: 'postgres' | 'temporal', config: Deployment): number {
  return state?.ports[name] ?? (config[`${name}_port`] || missing(`${name}'s port`, config));
}

function missing(what: string, config: Deployment): never {
  throw new TrialgateError(
    'missing_prerequisite',
    `${what} is not known: nothing was started in ${config.home} yet. Start it with \`npx trialgate up\``,
  );
}
