import type { ReactNode } from 'react';
import type { Answer } from '../use-answer.ts';
import { Recorded } from './recorded.tsx';

type Props<T> = {
  answer: Answer<T>;
  /** The text beside the Refresh button of a final answer. With null there is no text and no button, because nothing can change. */
  note?: string | null;
  children: (value: T) => ReactNode;
};

/** Shows an answer, that it is awaited, or why there is none. Old values stay while the gateway does not answer. */
export function ShowAnswer<T>({
  answer: { value, trouble, isFinal, refresh },
  note = 'This view is not read again by itself.',
  children,
}: Props<T>) {
  return (
    <>
      <div role="status">
        {trouble !== null && (
          <p className="trouble">
            <Recorded text={trouble} />
          </p>
        )}
      </div>
      {value !== null && children(value)}
      {value === null && trouble === null && <p className="hint">Loading …</p>}
      {isFinal && note !== null && (
        <p className="hint">
          {note}{' '}
          <button type="button" className="quiet" onClick={refresh}>
            Refresh
          </button>
        </p>
      )}
    </>
  );
}
