import { settingOf, type SettingKey } from '../config/settings.ts';
import { shownText } from '../config/show-setting.ts';
import type { Asked } from '../options.ts';
import { differences, type Difference, type RunningSettings } from './running-settings.ts';
import { readState } from './state.ts';
import { upCommand } from './up-command.ts';

/** A port does not change what engines and trainers compute, and a default one may have been another because it was taken. */
const OWN_PORTS: readonly SettingKey[] = ['gateway_port', 'postgres_port', 'temporal_port'];

/** Returns the settings that had a value of their own when the deployment ran, and for which no flag, variable or file gives one now. */
export function settingsNotGiven(
  { config, origins }: Pick<Asked, 'config' | 'origins'>,
  ran: RunningSettings | undefined | null,
): Difference[] {
  const others = differences(config, ran ?? {});
  const isOtherDevice = others.some(({ key }) => key === 'device');
  return others.filter(
    ({ key, running }) =>
      running !== null &&
      [undefined, 'default'].includes(origins[key]) &&
      !OWN_PORTS.includes(key) &&
      // It follows from the device.
      !(key === 'dtype' && isOtherDevice),
  );
}

/** Warns before a start that settings of the last one are missing: flags and variables hold for one start, and runs go on after each. */
export function warnOfSettingsNotGiven(asked: Asked): void {
  const missing = settingsNotGiven(asked, readState(asked.config.home)?.ready_settings);
  if (missing.length === 0) return;
  console.error(
    [
      'WARNING: the last start had settings that this one lacks. A run that has not ended goes on without them:',
      ...missing.map((each) => `  ${lineOf(each)}`),
      `To start with them again: \`npx trialgate down\`, then \`${upCommand(asked, missing)}\`. To have them at each start, write them into trialgate.yaml (${missing.map(({ key }) => key).join(', ')})`,
    ].join('\n'),
  );
}

function lineOf({ key, asked, running }: Difference): string {
  if (settingOf(key).secret) return `${key}: had another value`;
  return `${key}: ${shownText(key, running)} (now ${shownText(key, asked)})`;
}
