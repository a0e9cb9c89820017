import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { isAddress, type LoggerSetting } from '../../core/run-config/loggers.ts';
import { loggerPython } from '../install/loggers.ts';
import { tracesEndpoint, wandbMode } from './destination.ts';

/**
 * Checks that the loggers of a run can be opened here, as far as that can be told without them.
 * @throws TrialgateError that says what to install or to set
 */
export async function checkLoggers(loggers: readonly LoggerSetting[]): Promise<void> {
  for (const logger of loggers) {
    await loggerPython(logger.name);
    if (logger.name === 'mlflow') requireServer(logger.tracking_uri);
    if (logger.name === 'otel') requireReceiver(logger.endpoint);
    if (logger.name === 'wandb' && wandbMode(logger) === 'online' && !hasKey())
      throw new TrialgateError(
        'bad_input',
        'loggers: wandb needs a key: set WANDB_API_KEY here and where `up` is started, or write `{name: wandb, mode: offline}`',
      );
  }
}

function requireServer(uri: string | undefined): void {
  const address = uri ?? process.env['MLFLOW_TRACKING_URI'];
  if (!address)
    throw new TrialgateError(
      'bad_input',
      'loggers: mlflow needs the address of its server: `{name: mlflow, tracking_uri: http://host:5000}`, or MLFLOW_TRACKING_URI here and where `up` is started',
    );
  if (!/^https?:\/\//.test(address))
    throw new TrialgateError(
      'bad_input',
      'loggers: MLFLOW_TRACKING_URI is no address of a server: set one such as http://host:5000. Files of mlflow without a server are not written',
    );
}

function requireReceiver(given: string | undefined): void {
  const endpoint = tracesEndpoint(given);
  if (endpoint === undefined)
    throw new TrialgateError(
      'bad_input',
      'loggers: otel needs the address of a receiver of OTLP over HTTP: `{name: otel, endpoint: http://host:4318}`, or OTEL_EXPORTER_OTLP_ENDPOINT here and where `up` is started',
    );
  if (isAddress(endpoint)) return;
  const variable = process.env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT']
    ? 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'
    : 'OTEL_EXPORTER_OTLP_ENDPOINT';
  throw new TrialgateError(
    'bad_input',
    `loggers: ${variable} is no address of a receiver: set one such as http://host:4318. OTLP is sent over HTTP, not over gRPC`,
  );
}

/** True when wandb finds a key where it looks for one: the environment, or what `wandb login` wrote. */
function hasKey(): boolean {
  if (process.env['WANDB_API_KEY']) return true;
  const { hostname } = new URL(process.env['WANDB_BASE_URL'] || 'https://api.wandb.ai');
  try {
    return readFileSync(process.env['NETRC'] || join(homedir(), '.netrc'), 'utf8').includes(hostname);
  } catch {
    return false;
  }
}
