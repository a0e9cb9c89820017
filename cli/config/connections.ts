import { TrialgateError } from '../../store/errors.ts';
import { LOOPBACK } from '../supervisor/plan.ts';
import { readState, type StackState } from '../supervisor/state.ts';
import type { Deployment } from './schema.ts';
import { readSecrets } from './secrets.ts';

/** How a verb reaches the deployment's parts. */
export type Connections = {
  databaseUrl: string;
  temporalAddress: string;
  /** One of them. */
  gatewayUrl: string;
  gatewayUrls: string[];
  engines: string[];
  adminKey: string;
  secret: string;
};

/**
 * Where the parts are: as configured, else as the deployment's own supervisor recorded them (ports of 0 are settled there).
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
      return config.gateway_url?.[0] ?? `http://${LOOPBACK}:${port(state, 'gateway', config)}`;
    },
    get gatewayUrls() {
      return config.gateway_url ?? [this.gatewayUrl];
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

function port(state: StackState | null, name: 'postgres' | 'temporal' | 'gateway', config: Deployment): number {
  return state?.ports[name] ?? (config[`${name}_port`] || missing(`${name}'s port`, config));
}

function missing(what: string, config: Deployment): never {
  throw new TrialgateError('missing_prerequisite', `${what} is not known: nothing was started in ${config.home} yet. Start it with \`npx trialgate up\``);
}
