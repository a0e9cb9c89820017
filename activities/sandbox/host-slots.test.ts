import { expect, test } from 'vitest';
import { HostSlots } from './host-slots.ts';

const never = new AbortController().signal;

/** Returns true when the permit is granted before everything that is due now has run. */
async function isGiven(permit: Promise<object>): Promise<boolean> {
  let given = false;
  void permit.then(() => (given = true), () => {});
  await new Promise((resolve) => setTimeout(resolve, 10));
  return given;
}

test('a host grants at most as many places as it has', async () => {
  const slots = new HostSlots(2);
  slots.hold('a');
  await slots.permit(never);
  const third = slots.permit(never);
  expect(await isGiven(third)).toBe(false);
  slots.release('a');
  expect(await isGiven(third)).toBe(true);
});

test('releasing a permit or a sandbox twice frees one place', async () => {
  const slots = new HostSlots(1);
  const permit = await slots.permit(never);
  slots.hold('a');
  slots.releasePermit(permit);
  slots.releasePermit(permit);
  expect(slots.free).toBe(0);
  slots.release('a');
  slots.release('a');
  expect(slots.free).toBe(1);
  await slots.permit(never);
  expect(slots.free).toBe(0);
});

test('an aborted request fails, and the next place goes to the request behind it', async () => {
  const slots = new HostSlots(1);
  slots.hold('a');
  const controller = new AbortController();
  const givenUp = slots.permit(controller.signal);
  const other = slots.permit(never);
  controller.abort(new Error('given up'));
  await expect(givenUp).rejects.toThrow('given up');
  slots.release('a');
  expect(await isGiven(other)).toBe(true);
});

test('a permit whose request was aborted while it was granted is free again', async () => {
  const slots = new HostSlots(1);
  const controller = new AbortController();
  await slots.permit(controller.signal);
  controller.abort();
  expect(slots.free).toBe(1);
});
