import { stringifyExact } from '../store/exact-json.ts';

export const DONE = '[DONE]';

export const asEvent = (data: string): string => `data: ${data}\n\n`;

/** As those protocols have it whose events are named by their type. */
export const asTypedEvent = (event: { type: string; [field: string]: unknown }): string => `event: ${event.type}\n${asEvent(stringifyExact(event))}`;

/** A line that clients skip: it keeps a connection from looking dead. */
export const KEEP_ALIVE = ': keep-alive\n\n';

/** A reverse proxy must not hold events back. */
export const EVENT_STREAM = { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache', 'x-accel-buffering': 'no' };
