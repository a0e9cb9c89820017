/** The supervisor of a chaos deployment: like `trialgate supervise`, with other components. Its argument is the wiring. */
import { resolveConfig } from '../../cli/config/resolve.ts';
import { makeLog } from '../../core/log.ts';
import { shutdownSignal } from '../../cli/signals.ts';
import { runSupervisorInForeground, stackLog } from '../../cli/supervisor/supervise.ts';
import { chaosComponents, wiring } from './components.ts';

const { config } = resolveConfig();
const components = chaosComponents(wiring.parse(JSON.parse(process.argv[2] ?? '')));
const signal = shutdownSignal();
const log = makeLog({ process: 'supervisor', format: 'text', write: console.log });
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
await runSupervisorInForeground({ config, components, onChange: stackLog(log) }, signal).catch((error: unknown) => {
  if (!signal.aborted) throw error;
});
process.exit(0);
