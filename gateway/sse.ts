import { stringifyExact } from '../core/exact-json.ts';

export const DONE = '[DONE]';

export const asEvent = (data: string): string => `data: ${data}\n\n`;

/** Returns an event in the form of protocols that name each event by its type. */
export const asTypedEvent = (event: { type: string; [field: string]: unknown }): string => `event: ${event.type}\n${asEvent(stringifyExact(event))}`;

/** A comment line that clients skip. It shows that the connection is alive. */
export const KEEP_ALIVE = ': keep-alive\n\n';

/** Tells reverse proxies not to hold events back. */
export const EVENT_STREAM = { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache', 'x-accel-buffering': 'no' };
