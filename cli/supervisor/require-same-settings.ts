import { TrialgateError } from '../../core/errors.ts';
import { settingOf } from '../config/settings.ts';
import { shownText } from '../config/show-setting.ts';
import type { Asked } from '../options.ts';
import { differences, type Difference } from './running-settings.ts';
import { settingsNotGiven } from './settings-not-given.ts';
import type { StackState } from './state.ts';
import { quoted, upCommand } from './up-command.ts';

/**
 * Compares the settings that flags, environment or file give with those of the deployment that runs. A default is no wish.
 * @throws TrialgateError `bad_input` with each setting that differs, and how to apply it
 */
export function requireSameSettings(asked: Asked, { settings, components }: StackState): void {
  if (settings === null) return;
  const others = differences(asked.config, settings).filter(
    // Any port satisfies a port of 0.
    ({ key, asked: value }) =>
      ![undefined, 'default'].includes(asked.origins[key]) && !(/_port$/.test(key) && value === 0),
  );
  if (others.length === 0) return;
  const model = components.some(({ name }) => name === 'vllm') ? others.find(({ key }) => key === 'model') : undefined;
  const home = asked.flags.home === undefined ? '' : ` --home ${quoted(asked.flags.home)}`;
  const use = model && `\`npx trialgate engine use ${quoted(shownText('model', model.asked))}${home}\``;
  const isElsewhere = others.some(({ key }) => ['database_url', 'temporal_address', 'secret'].includes(key));
  const up = upCommand(asked, settingsNotGiven(asked, settings));
  const restart = `\`npx trialgate down${home}\`, then \`${up}\`${isElsewhere ? '' : '; runs go on afterwards'}`;
  const how =
    use === undefined
      ? `To apply this: ${restart}`
      : others.length === 1
        ? `To apply this: ${use}`
        : `To apply this: ${restart}. For the model alone: ${use}`;
  throw new TrialgateError(
    'bad_input',
    [
      `Trialgate is already up in ${asked.config.home}, with other settings than these, which were not applied:`,
      ...others.map((each) => `  ${lineOf(each)}`),
      how,
    ].join('\n'),
  );
}

function lineOf({ key, asked, running }: Difference): string {
  if (settingOf(key).secret) return `${key}: another value than the one that runs`;
  return `${key}: ${shownText(key, running)} → ${shownText(key, asked)}`;
}
