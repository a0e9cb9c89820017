import { expect, test } from 'vitest';
import { HostSlots } from './host-slots.ts';

const never = new AbortController().signal;

test('a host takes more sandboxes than it has room for', async () => {
  const slots = new HostSlots(1);
  await slots.take('a', never);
  let second = false;
  const waiting = slots.take('b', never).then(() => (second = true));
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(second).toBe(false);
  slots.release('a');
  await waiting;
  expect(second).toBe(true);
});

test('a retried activity waits for the slot that it holds itself', async () => {
  const slots = new HostSlots(1);
  await slots.take('a', never);
  await slots.take('a', never);
});

test('a cancelled wait goes on for ever', async () => {
  const slots = new HostSlots(1);
  await slots.take('a', never);
  const controller = new AbortController();
  const waiting = slots.take('b', controller.signal);
  controller.abort(new Error('cancelled'));
  await expect(waiting).rejects.toThrow('cancelled');
});
