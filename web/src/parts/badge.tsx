import { visible } from '../format.ts';

const KINDS: Readonly<Record<string, string>> = {
  running: 'good',
  completed: 'plain',
  done: 'plain',
  blocked: 'warn',
  failed: 'bad',
  cancelled: 'warn',
  scored: 'plain',
  truncated: 'warn',
  timed_out: 'warn',
  agent_error: 'bad',
  verifier_error: 'bad',
  infra_error: 'bad',
  stale: 'warn',
  no_spread: 'warn',
  open: 'good',
  superseded: 'warn',
  serving: 'good',
  publication: 'warn',
  draining: 'warn',
  not_confirmed: 'bad',
  failing: 'bad',
};

/** Returns the word for a trial's or an attempt's outcome. Without one it is under way, unless nothing of it runs any more. */
export const outcomeWord = (outcome: string | null, isOver: boolean): string =>
  outcome ?? (isOver ? 'cancelled' : 'open');

/** A word of the record, such as a status or an outcome. */
export function Badge({ word, title }: { word: string; title?: string }) {
  return (
    <span className={`badge ${Object.hasOwn(KINDS, word) ? KINDS[word] : 'plain'}`} title={title}>
      {visible(word.replaceAll('_', ' '))}
    </span>
  );
}
