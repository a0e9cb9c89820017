import { expect, test } from 'vitest';
import { HostSlots } from './host-slots.ts';

const never = new AbortController().signal;

/** Whether it resolves before everything that is due now has run. */
async function isGiven(permit: Promise<object>): Promise<boolean> {
  let given = false;
  void permit.then(() => (given = true), () => {});
  await new Promise((resolve) => setTimeout(resolve, 10));
  return given;
}

test('a host promises more places than it has', async () => {
  const slots = new HostSlots(2);
  slots.hold('a');
  await slots.permit(never);
  const third = slots.permit(never);
  expect(await isGiven(third)).toBe(false);
  slots.release('a');
  expect(await isGiven(third)).toBe(true);
});

test('a permit that is given back twice, or a sandbox that is closed twice, makes a place that is not there', async () => {
  const slots = new HostSlots(1);
  const permit = await slots.permit(never);
  slots.hold('a');
  slots.giveBack(permit);
  slots.giveBack(permit);
  expect(slots.free).toBe(0);
  slots.release('a');
  slots.release('a');
  expect(slots.free).toBe(1);
  await slots.permit(never);
  expect(slots.free).toBe(0);
});

test('a request that was given up goes on waiting, or takes the place of another', async () => {
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

test('a permit whose asker went away while it was given is lost for ever', async () => {
  const slots = new HostSlots(1);
  const controller = new AbortController();
  await slots.permit(controller.signal);
  controller.abort();
  expect(slots.free).toBe(1);
});
