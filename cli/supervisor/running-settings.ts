import { createHmac } from 'node:crypto';
import { resolveModel } from '../../activities/run/resolve-paths.ts';
import type { Deployment } from '../config/schema.ts';
import { readSecrets, secretsOf, type Secrets } from '../config/secrets.ts';
import { SETTING_KEYS, settingOf, type SettingKey } from '../config/settings.ts';
import { deviceOf, dtypeOf } from './device.ts';

/** The settings with which a deployment runs, in the form in which equal ones are equal: a secret is a fingerprint, a model is its folder. */
export type RunningSettings = Record<string, unknown>;
type Ports = { postgres: number; temporal: number; gateway?: number };
export type Difference = { key: SettingKey; asked: unknown; running: unknown };

/** `home` finds the deployment, and only the installer uses `python`. */
const UNCOMPARED: readonly SettingKey[] = ['home', 'python'];

/** Returns what the supervisor records. A port of 0 is recorded as the port that was chosen. */
export function runningSettings(config: Deployment, ports: Ports): RunningSettings {
  const chosen = {
    ...config,
    postgres_port: ports.postgres,
    temporal_port: ports.temporal,
    gateway_port: ports.gateway ?? config.gateway_port,
  };
  return comparable(chosen, secretsOf(config.home));
}

/** Returns the settings whose configured value is not the one that runs. A secret cannot be compared when `secrets.json` is gone. */
export function differences(config: Deployment, running: RunningSettings): Difference[] {
  const made = readSecrets(config.home);
  const asked = comparable(config, made);
  return SETTING_KEYS.filter((key) => !UNCOMPARED.includes(key) && key in running)
    .filter((key) => made !== null || !settingOf(key).secret)
    .map((key) => ({ key, asked: asked[key], running: running[key] }))
    .filter((each) => JSON.stringify(each.asked) !== JSON.stringify(each.running));
}

function comparable(config: Deployment, made: Secrets | null): RunningSettings {
  const values = {
    ...config,
    model: resolveModel(config.model),
    device: deviceOf(config.device),
    dtype: dtypeOf(config).dtype,
    admin_key: config.admin_key ?? made?.admin_key,
    secret: config.secret ?? made?.secret,
  };
  const fingerprint = (text: string): string | null =>
    made && createHmac('sha256', made.secret).update(text).digest('hex');
  return Object.fromEntries(
    SETTING_KEYS.map((key) => {
      const value = values[key];
      return [key, settingOf(key).secret && typeof value === 'string' ? fingerprint(value) : (value ?? null)];
    }),
  );
}
