import { Command } from 'commander';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import {
  DEFAULT_SETTINGS,
  GATEWAY_KEYS,
  GATEWAY_SETTINGS,
  settingsFrom,
  type GatewayKey,
} from '../../gateway/settings.ts';
import { readEnvironment } from '../../gateway/runtimes/workerd/settings.ts';
import { addSettings, settingsOf } from '../options.ts';
import { resolveConfig } from './resolve.ts';
import { flagOf, variableOf } from './settings.ts';

/** Returns a value that is valid and not the default. */
function otherValue(key: GatewayKey): boolean | number | string {
  const { default: usual, schema } = GATEWAY_SETTINGS[key];
  if (typeof usual === 'boolean') return !usual;
  if (typeof usual === 'number') return 7;
  const choices: string[] = schema instanceof z.ZodEnum ? schema.options : [];
  return choices.find((choice) => choice !== usual) ?? usual;
}

const fromFlag = async (key: GatewayKey, value: string) => {
  const command = addSettings(new Command()).parse([flagOf(key), value], { from: 'user' });
  return settingsFrom((await settingsOf(command)).config);
};

const fromVariable = (key: GatewayKey, value: string) =>
  settingsFrom(resolveConfig({ env: { [variableOf(key)]: value } }).config);

function fromYaml(key: GatewayKey, value: string) {
  const cwd = mkdtempSync(path.join(os.tmpdir(), 'gateway-settings-'));
  try {
    writeFileSync(path.join(cwd, 'trialgate.yaml'), `${key}: ${value}\n`);
    return settingsFrom(resolveConfig({ cwd, env: {} }).config);
  } finally {
    rmSync(cwd, { recursive: true });
  }
}

const NEEDED = {
  HYPERDRIVE: { connectionString: 'postgres://a@b/c' },
  TRIALGATE_SECRET: 'a secret of sixteen characters',
  TRIALGATE_ADMIN_KEY: 'the admin key',
  TRIALGATE_ENGINES: 'https://one.example',
};
const fromBinding = (key: GatewayKey, value: string) =>
  readEnvironment({ ...NEEDED, [variableOf(key)]: value }).settings;

test.each(GATEWAY_KEYS)(
  'the gateway reads its setting %s from a flag, an environment variable, trialgate.yaml and a Cloudflare Worker’s binding',
  async (key) => {
    const value = otherValue(key);
    const { name, ...declared } = GATEWAY_SETTINGS[key];
    const expected = typeof value === 'number' && 'times' in declared ? value * declared.times : value;
    expect(expected).not.toBe(DEFAULT_SETTINGS[name]);
    const text = String(value);
    for (const settings of [
      await fromFlag(key, text),
      fromVariable(key, text),
      fromYaml(key, text),
      fromBinding(key, text),
    ]) {
      expect(settings[name]).toBe(expected);
    }
  },
);

test.each(GATEWAY_KEYS)(
  'the gateway refuses a bad value of its setting %s with the variable’s name, on Node and in a Cloudflare Worker',
  (key) => {
    const message = expect.stringMatching(new RegExp(`^${variableOf(key)}: .*expected `));
    expect(() => fromVariable(key, '-1')).toThrow(expect.objectContaining({ code: 'bad_input', message }));
    expect(() => fromBinding(key, '-1')).toThrow(expect.objectContaining({ code: 'missing_prerequisite', message }));
  },
);

test('the gateway’s settings are given in seconds and MiB, and reach its code in milliseconds and bytes', () => {
  expect(fromVariable('hold_seconds', '1.5').holdMs).toBe(1500);
  expect(fromBinding('conversation_memory_mb', '8').conversationMemoryBytes).toBe(8 * 2 ** 20);
});
