/** Writes a call's id in the form of a protocol's own ids: `msg_` or `resp_` and 32 hexadecimal digits. */
export const asProtocolId = (prefix: string, callId: string): string => `${prefix}_${callId.replaceAll('-', '')}`;

/** Returns the call that such an id names, or null. */
export function callOfId(prefix: string, id: string): string | null {
  const [, a, b, c, d, e] =
    new RegExp(`^${prefix}_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$`).exec(id) ?? [];
  return a === undefined ? null : [a, b, c, d, e].join('-');
}
