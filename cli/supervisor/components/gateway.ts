import { GATEWAY_KEYS, variableOf } from '../../../gateway/settings.ts';
import { DISCOVERY_KEYS } from '../../config/settings.ts';
import { INSTALLS } from '../../folders.ts';
import { fileLogFormatOf } from '../../process-log.ts';
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
        TRIALGATE_ENGINE_KEYS: JSON.stringify(plan.config.engine_keys),
        TRIALGATE_DATABASE_URL: plan.databaseUrl,
        TRIALGATE_TEMPORAL_ADDRESS: plan.temporalAddress,
        TRIALGATE_ADMIN_KEY: plan.adminKey,
        TRIALGATE_READ_KEY: plan.config.read_key ?? '',
        TRIALGATE_SECRET: plan.secret,
        TRIALGATE_LOG_FORMAT: fileLogFormatOf(plan.config),
        ...Object.fromEntries(DISCOVERY_KEYS.map((key) => [variableOf(key), String(plan.config[key] ?? '')] as const)),
        ...Object.fromEntries(GATEWAY_KEYS.map((key) => [variableOf(key), String(plan.config[key])])),
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
    stopWithinMs: 20_000,
  };
}
