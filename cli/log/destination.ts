import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { isAddress, settingsOfLogger, type LoggerName, type LoggerSetting } from '../../core/run-config/loggers.ts';
import { homeFolders } from '../folders.ts';

/** The place to which a logger writes: a server's experiment, a project, a folder. */
export type Destination = {
  logger: LoggerName;
  settings: Record<string, string>;
  /** The most trials of an iteration or an evaluation that it gets as traces. */
  traces: number;
  /** Tells it from another place of the same logger. */
  digest: string;
};

/** A trace may have some MB, and a server keeps all of them, so the default shows samples. Its users set more where they need each trial. */
const DEFAULT_TRACES = 8;

/** Returns where a logger writes, with the defaults and what the environment says. */
export function destinationOf(home: string, { name, traces = DEFAULT_TRACES, ...given }: LoggerSetting): Destination {
  const all = {
    folder: join(homeFolders(home).loggers, name),
    experiment: 'trialgate',
    project: 'trialgate',
    tracking_uri: process.env['MLFLOW_TRACKING_URI'],
    mode: wandbMode({ name, ...given }),
    ...given,
    endpoint: tracesEndpoint(given.endpoint),
  };
  const known = settingsOfLogger(name);
  const settings = Object.fromEntries(
    Object.entries(all).flatMap(([key, value]) => (value && known.includes(key) ? [[key, value]] : [])),
  );
  const entries = Object.entries(settings).toSorted(([a], [b]) => (a < b ? -1 : 1));
  // Online, the folder is not where the metrics are.
  const place = settings['mode'] === 'online' ? entries.filter(([key]) => key !== 'folder') : entries;
  const digest = createHash('sha256')
    .update(JSON.stringify([name, place]))
    .digest('hex')
    .slice(0, 12);
  return { logger: name, settings, traces: settingsOfLogger(name).includes('traces') ? traces : 0, digest };
}

/**
 * Returns the address to which spans are sent, as OpenTelemetry's variables give it: that of the traces as it is, any other one with the path
 * of traces behind it. Undefined: none is set.
 */
export function tracesEndpoint(given: string | undefined): string | undefined {
  const whole = process.env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'];
  if (given === undefined && whole) return whole;
  const base = given ?? process.env['OTEL_EXPORTER_OTLP_ENDPOINT'];
  if (!base || !isAddress(base)) return base || undefined;
  const url = new URL(base);
  const path = url.pathname.replace(/\/+$/, '');
  url.pathname = path.endsWith(TRACES_PATH) ? path : `${path}${TRACES_PATH}`;
  return url.href;
}

const TRACES_PATH = '/v1/traces';

/** Returns the mode in which wandb runs here. */
export const wandbMode = ({ mode }: LoggerSetting): string => mode ?? (process.env['WANDB_MODE'] || 'online');
