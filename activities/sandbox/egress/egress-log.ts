/** What a sandbox asked of the egress proxy, added up over equal requests. */
export type EgressRow = {
  host: string;
  port: number;
  /** Null: it was allowed. Otherwise `refused: …` or `failed: …`. */
  fault: string | null;
  count: number;
  /** Bytes to the host and from it. */
  sent: number;
  received: number;
};

/** Names and reasons are the sandbox's choice, so only so many different rows are kept. */
const MAX_ROWS = 100;

export class EgressLog {
  readonly #rows = new Map<string, EgressRow>();

  add(row: Pick<EgressRow, 'host' | 'port' | 'fault'> & Partial<EgressRow>): void {
    const { host, port, fault, count = 1, sent = 0, received = 0 } = row;
    const key = JSON.stringify([host, port, fault]);
    const known = this.#rows.get(key);
    if (!known && this.#rows.size >= MAX_ROWS && host !== OTHERS)
      return this.add({ ...row, host: OTHERS, port: 0, fault: fault === null ? null : 'refused or failed' });
    this.#rows.set(key, {
      host,
      port,
      fault,
      count: (known?.count ?? 0) + count,
      sent: (known?.sent ?? 0) + sent,
      received: (known?.received ?? 0) + received,
    });
  }

  rows(): EgressRow[] {
    return [...this.#rows.values()];
  }
}

const OTHERS = 'others';

/** Returns the log for people, a line for each row; '' when nothing was asked. */
export const egressText = (rows: readonly EgressRow[]): string => rows.map((row) => `${lineOf(row)}\n`).join('');

function lineOf({ host, port, fault, count, sent, received }: EgressRow): string {
  const to = port === 0 ? host : `${host}:${port}`;
  const bytes = sent + received > 0 ? `, ${number(sent)} bytes sent, ${number(received)} received` : '';
  return `${to}   ${fault ?? 'allowed'}, ${number(count)} ${count === 1 ? 'time' : 'times'}${bytes}`;
}

const number = (value: number): string => value.toLocaleString('en-US');
