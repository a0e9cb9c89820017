import { expect, test } from 'vitest';
import { canResume, throwUnlessCompleted } from './watch-run.ts';

const endOf = (status: string, reason: string, type: string | null = null): { message: string; canResume: boolean } => {
  try {
    throwUnlessCompleted('first', { status, reason }, type);
  } catch (error) {
    return { message: String(error), canResume: canResume(error) };
  }
  return { message: 'completed', canResume: true };
};

test('a watcher of a blocked run advises `resume`, except where the reason names the command or only another model helps', () => {
  expect(endOf('blocked', 'the disk is full', 'DiskFull')).toEqual({
    message: 'Error: run first is blocked: the disk is full\nRepair that, then: npx trialgate resume first',
    canResume: true,
  });
  const named = 'no sample. Repair the cause, then "npx trialgate redo first" samples anew';
  expect(endOf('blocked', named, 'empty_batch').message).toBe(`Error: run first is blocked: ${named}`);
  const damaged = endOf('blocked', 'the model cannot be trained', 'BadModel');
  expect(damaged.message).toContain('name another one in the run file and start another run');
  expect(damaged.canResume).toBe(false);
  expect(endOf('failed', 'bad file').message).toBe('Error: run first failed: bad file');
});
