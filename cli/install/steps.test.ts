import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { INSTALLS } from '../folders.ts';
import { isOpen } from './install.ts';
import { forget, markDone } from './stamps.ts';
import { stepsFor, type Step } from './steps.ts';

test('an optional step of the installation that made nothing runs again in each `install`, and in `up` only after its inputs changed', () => {
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-steps-'));
  const step: Step = {
    title: 'a step',
    name: `test-${process.pid}`,
    inputs: { profile: null },
    makes: join(folder, 'filter'),
    isOptional: true,
    run: async () => {},
  };
  onTestFinished(() => {
    forget(step.name);
    rmSync(folder, { recursive: true });
  });
  const isOpenTo = (changed: Partial<Step> = {}) => ({
    up: isOpen({ ...step, ...changed }),
    install: isOpen({ ...step, ...changed }, true),
  });
  expect(isOpenTo()).toEqual({ up: true, install: true });
  markDone(step);
  expect(isOpenTo()).toEqual({ up: false, install: true });
  expect(isOpenTo({ inputs: { profile: 'podman is installed now' } })).toEqual({ up: true, install: true });
  expect(isOpenTo({ isOptional: false })).toEqual({ up: true, install: true });
  writeFileSync(step.makes, '');
  expect(isOpenTo()).toEqual({ up: false, install: false });
});

test('the installation makes the seccomp filter again after it was removed and after the system’s profile changed', () => {
  const step = stepsFor('cpu', undefined, '').find(({ name }) => name === 'seccomp');
  const system = existsSync('/usr/share/containers/seccomp.json') ? expect.any(String) : null;
  expect(step).toMatchObject({
    makes: join(INSTALLS.tools, 'seccomp.bpf'),
    inputs: { profile: system },
    isOptional: true,
  });
});
