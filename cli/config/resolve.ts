import path from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { gatewayPorts } from '../supervisor/gateways.ts';
import { chosenModel } from './engine-choice.ts';
import { deployment, type Deployment } from './schema.ts';
import { SETTING_KEYS, settingOf, type SettingKey } from './settings.ts';
import { defaults, fromEnvironment, fromFile, fromFlags, type SourcedValue, type Source } from './sources.ts';

export type Flags = Partial<Record<SettingKey, string>>;
export type ResolvedConfig = {
  config: Deployment;
  origins: Partial<Record<SettingKey, string>>;
  /** The model that the file or the environment names, without a flag and without the choice of `trialgate engine use`. */
  configuredModel: string | null;
};

/**
 * Returns the deployment's settings: defaults < YAML file < environment < flags. Every given value is checked, also one that
 * another source overrides. The model that `trialgate engine use` chose comes before all but the flag.
 * @throws TrialgateError `bad_input` with one line a fault: the flag, variable or file and line, what was expected, what was found.
 */
export function resolveConfig(
  options: { flags?: Flags; file?: string; env?: NodeJS.ProcessEnv; cwd?: string } = {},
): ResolvedConfig {
  const cwd = options.cwd ?? process.cwd();
  const env = options.env ?? process.env;
  const configured = [fromFile(cwd, options.file), fromEnvironment(env)];
  const sources = [defaults(), ...configured, fromFlags(options.flags ?? {})];
  const faults = sources.flatMap(faultsOf);
  if (faults.length) throw new TrialgateError('bad_input', faults.join('\n'));
  const winners: Source = Object.assign({}, ...sources);
  const values = Object.fromEntries(SETTING_KEYS.map((key) => [key, winners[key]?.value]));
  const config = deployment.parse(values);
  config.home = path.resolve(cwd, config.home);
  if (config.engines_file !== undefined) config.engines_file = path.resolve(cwd, config.engines_file);
  // Refuses more gateways than there are ports.
  gatewayPorts(config);
  const origins: ResolvedConfig['origins'] = Object.fromEntries(SETTING_KEYS.map((key) => [key, winners[key]?.from]));
  const named = Object.assign({}, ...configured).model?.value;
  const configuredModel = typeof named === 'string' ? named : null;
  const chosen = options.flags?.model === undefined ? chosenModel(config.home, configuredModel) : null;
  if (chosen !== null) {
    config.model = chosen;
    origins.model = 'engine use';
  }
  return { config, origins, configuredModel };
}

function faultsOf(source: Source): string[] {
  return SETTING_KEYS.flatMap((key) => {
    const given = source[key];
    return given ? faultsOfValue(key, given) : [];
  });
}

function faultsOfValue(key: SettingKey, { value, from }: SourcedValue): string[] {
  const parsed = deployment.shape[key].safeParse(value);
  if (parsed.success) return [];
  const found = settingOf(key).secret ? 'something else' : JSON.stringify(value);
  return parsed.error.issues.map((issue) => `${from}: \`${key}\`: expected ${issue.message}, found ${found}`);
}
