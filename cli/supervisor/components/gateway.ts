import { INSTALLS } from '../../folders.ts';
import { environment, type Component } from '../component.ts';
import type { OwnGateway } from '../gateways.ts';
import type { Plan } from '../plan.ts';

/** Limits the memory of young objects, which takes hundreds of megabytes by default. The value is in MiB; V8 uses up to three times as much. */
export const GATEWAY_HEAP = ['--max-semi-space-size=32'];

export function gateway(plan: Plan, { name, port, url }: OwnGateway): Component {
  const { gateway_host: host } = plan.config;
  return {
    name,
    address: url,
    needs: ['postgres'],
    prepare: () => plan.held.handOver(port, host, `the ${name}`, 'gateway_port'),
    launch: () => ({
      file: INSTALLS.node,
      args: [...GATEWAY_HEAP, INSTALLS.main, 'gateway'],
      env: environment({
        TRIALGATE_HOME: plan.config.home,
        TRIALGATE_GATEWAY_HOST: host,
        TRIALGATE_GATEWAY_PORT: String(port),
        TRIALGATE_ENGINES: JSON.stringify(plan.engines),
        TRIALGATE_DATABASE_URL: plan.databaseUrl,
        TRIALGATE_ADMIN_KEY: plan.adminKey,
        TRIALGATE_SECRET: plan.secret,
        TRIALGATE_TOKEN_IN: String(plan.config.token_in),
        TRIALGATE_BUDGET_END: plan.config.budget_end,
        TRIALGATE_STRICT_MODEL: String(plan.config.strict_model),
        TRIALGATE_HOLD_SECONDS: String(plan.config.hold_seconds),
        TRIALGATE_IDLE_SECONDS: String(plan.config.idle_seconds),
        TRIALGATE_KEEP_ALIVE_SECONDS: String(plan.config.keep_alive_seconds),
        TRIALGATE_STORE_WAIT_SECONDS: String(plan.config.store_wait_seconds),
        TRIALGATE_MAX_CALLS_IN_FLIGHT: String(plan.config.max_calls_in_flight),
        TRIALGATE_CONVERSATION_MEMORY_MB: String(plan.config.conversation_memory_mb),
        TRIALGATE_MAX_BODY_BYTES: String(plan.config.max_body_bytes),
        TRIALGATE_MAX_BODY_NODES: String(plan.config.max_body_nodes),
        TRIALGATE_MAX_BODY_DEPTH: String(plan.config.max_body_depth),
        TRIALGATE_MAX_BODY_BYTES_IN_FLIGHT: String(plan.config.max_body_bytes_in_flight),
        TRIALGATE_COMPAT: plan.config.compat,
      }),
      cwd: plan.folders.home,
    }),
    isReady: async (_pid, signal) => {
      const reply = await fetch(`${url}/health`, { signal: AbortSignal.any([signal, AbortSignal.timeout(3000)]) });
      await reply.body?.cancel();
      return reply.ok;
    },
    readyWithinMs: 60_000,
    stopSignal: 'SIGTERM',
    stopWithinMs: 15_000,
  };
}
