import { expect, test } from 'vitest';
import { HostSlots } from './host-slots.ts';

const never = new AbortController().signal;

/** Returns true when the permit is granted before everything that is due now has run. */
async function isGiven(permit: Promise<object>): Promise<boolean> {
  let given = false;
  void permit.then(
    () => (given = true),
    () => {},
  );
  await new Promise((resolve) => setTimeout(resolve, 10));
  return given;
}

test('a host grants at most as many slots as it has, and a waiting trial gets one when it is released', async () => {
  const slots = new HostSlots(2);
  slots.hold('a');
  await slots.permit(never);
  const third = slots.permit(never);
  expect(await isGiven(third)).toBe(false);
  slots.release('a');
  expect(await isGiven(third)).toBe(true);
});

test('releasing a slot’s permit twice, or a sandbox twice, frees one slot', async () => {
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

test('a request for a slot that is aborted fails, and the next free slot goes to the request behind it', async () => {
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

test('a slot that was granted while its request was aborted is free again', async () => {
  const slots = new HostSlots(1);
  const controller = new AbortController();
  await slots.permit(controller.signal);
  controller.abort();
  expect(slots.free).toBe(1);
});
