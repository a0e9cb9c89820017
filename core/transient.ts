/**
 * SQLSTATE classes and codes after which a retry may succeed: connection lost, read-only (a standby before it is promoted), deadlock, out
 * of slots, shutting down.
 */
const TRANSIENT = /^(08|25006|40|53|57P0)/;

/**
 * True when a retry may succeed: for a lost or refused connection and for a server that is starting or stopping. False for an error that
 * the row itself causes (a constraint, a value that does not fit). The messages without a code are those of `pg` and workerd.
 */
export function isTransient(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const code = 'code' in cause ? cause.code : undefined;
    if (typeof code !== 'string') continue;
    if (TRANSIENT.test(code) || /^(ECONN|EPIPE|ENOENT|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EAI_)/.test(code)) return true;
    return false;
  }
  return /connection (terminated|timeout|ended|attempt failed|lost)|timeout exceeded|client has encountered|not queryable/i.test(
    messages(error),
  );
}

function messages(error: unknown): string {
  return error instanceof Error ? `${error.message} ${messages(error.cause)}` : '';
}
