export const DONE = '[DONE]';

export const asEvent = (data: string): string => `data: ${data}\n\n`;

/** A line that clients skip: it keeps a connection from looking dead. */
export const KEEP_ALIVE = ': keep-alive\n\n';

/** A reverse proxy must not hold events back. */
export const EVENT_STREAM = { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache', 'x-accel-buffering': 'no' };
