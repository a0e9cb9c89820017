import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { TrialgateError } from '../../core/errors.ts';
import { resolveConfig } from './resolve.ts';

let cwd: string;
beforeAll(() => (cwd = mkdtempSync(path.join(os.tmpdir(), 'config-'))));
beforeEach(() => yaml(''));
afterAll(() => rmSync(cwd, { recursive: true }));

function yaml(content: string | Buffer): void {
  writeFileSync(path.join(cwd, 'trialgate.yaml'), content);
}

function faultOf(options: Parameters<typeof resolveConfig>[0]): string {
  try {
    resolveConfig({ cwd, env: {}, ...options });
  } catch (error) {
    if (error instanceof TrialgateError && error.code === 'bad_input') return error.message;
    throw error;
  }
  throw new Error('nothing was refused');
}

describe('sources of a deployment’s settings', () => {
  it('a flag wins over an environment variable, a variable over trialgate.yaml, and trialgate.yaml over the default', () => {
    yaml('gateway_port: 1001\ntemporal_port: 1002\npostgres_port: 1003\n');
    const env = { TRIALGATE_TEMPORAL_PORT: '2002', TRIALGATE_POSTGRES_PORT: '2003' };
    const { config, origins } = resolveConfig({ cwd, env, flags: { postgres_port: '3003' } });
    expect([config.max_model_len, config.gateway_port, config.temporal_port, config.postgres_port]).toEqual([
      2048, 1001, 2002, 3003,
    ]);
    expect([origins.max_model_len, origins.gateway_port, origins.temporal_port, origins.postgres_port]).toEqual([
      'default',
      'trialgate.yaml:1',
      'TRIALGATE_TEMPORAL_PORT',
      '--postgres-port',
    ]);
  });

  it('a trialgate.yaml that is not UTF-8 is refused by line and column', () => {
    yaml(Buffer.from('gateway_port: 1001\nmodel: caf\xe9\n', 'latin1'));
    expect(faultOf({})).toMatch(/^trialgate\.yaml:2:11: not UTF-8/);
  });

  it('`engine_args` are the same from a list in trialgate.yaml and from an environment variable', () => {
    yaml('engine_args: [--enable-auto-tool-choice, --tool-call-parser, hermes]\n');
    const { config } = resolveConfig({ cwd, env: {} });
    expect(config.engine_args).toEqual(['--enable-auto-tool-choice', '--tool-call-parser', 'hermes']);
    const env = { TRIALGATE_ENGINE_ARGS: '--enable-auto-tool-choice  --tool-call-parser hermes' };
    expect(resolveConfig({ cwd, env }).config).toEqual(config);
  });

  it('an empty environment variable counts as not set', () => {
    expect(resolveConfig({ cwd, env: { TRIALGATE_GATEWAY_PORT: '' } }).config.gateway_port).toBe(8700);
  });
});

describe('bad values of a deployment’s settings', () => {
  it('a bad value in trialgate.yaml is refused with the file and line', () => {
    yaml('# a comment\ngateway_port: 99999\n');
    expect(faultOf({})).toBe('trialgate.yaml:2: `gateway_port`: expected a port (0 to 65535), found 99999');
  });

  it('a bad value in an environment variable is refused with the variable’s name', () => {
    expect(faultOf({ env: { TRIALGATE_DEVICE: 'gpu' } })).toBe(
      'TRIALGATE_DEVICE: `device`: expected auto, cpu or cuda, found "gpu"',
    );
  });

  it('an environment variable whose JSON is broken is refused with the variable’s name', () => {
    expect(faultOf({ env: { TRIALGATE_ENGINES: '["http://a' } })).toMatch(
      /^TRIALGATE_ENGINES: expected a JSON list or URLs/,
    );
  });

  it('an unknown setting, a file that is not valid YAML and a missing file are refused with their names', () => {
    yaml('gatway_port: 1\n');
    expect(faultOf({})).toMatch(/^trialgate\.yaml:1: unknown setting `gatway_port`/);
    yaml('a: [1\n');
    expect(faultOf({})).toMatch(/^trialgate\.yaml:\d: not valid YAML/);
    expect(faultOf({ file: 'none.yaml' })).toMatch(/none\.yaml/);
  });

  it('a key in an engine’s URL is refused, and so is a key in place of a variable’s name, which the message does not print', () => {
    const fault = faultOf({ flags: { engine_keys: 'a.example=sk-hunter2' } });
    expect(fault).toBe(
      '--engine-keys: `engine_keys`: expected HOST=VARIABLE or HOST=/path/to/file, which has the key, found something else',
    );
    expect(faultOf({ flags: { engines: 'openai+https://sk-hunter2@a.example' } })).toContain('without a key');
  });

  it('the message about a bad secret does not print it', () => {
    expect(faultOf({ env: { TRIALGATE_SECRET: 'hunter2' } })).not.toContain('hunter2');
  });

  it('a bad value is refused even when a stronger source overrides it', () => {
    expect(faultOf({ env: { TRIALGATE_GATEWAY_PORT: 'x' }, flags: { gateway_port: '1' } })).toMatch(
      /^TRIALGATE_GATEWAY_PORT/,
    );
  });
});

it('the setting `temporal_address` without a port gets Temporal’s default port', () => {
  yaml('');
  expect(resolveConfig({ cwd, env: { TRIALGATE_TEMPORAL_ADDRESS: 'temporal.example' } }).config.temporal_address).toBe(
    'temporal.example:7233',
  );
});
