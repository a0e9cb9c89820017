import { createContext, useContext, useEffect, useState } from 'react';
import { TrialgateApiError, type TrialgateClient } from '../../clients/typescript/client.ts';
import { reuse } from './reuse.ts';
import { RunStream } from './run-stream.ts';
import { spread } from './spread.ts';

type Session = { client: TrialgateClient; refuseKey: (why: string) => void };
export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error('the page has no session');
  return session;
}

type Shown<T> = {
  /** The gateway's last answer. */
  value: T | null;
  /** The reason why the gateway does not answer now. A page that shows old values has both. */
  trouble: string | null;
  /** True when it is not asked again by itself: nothing more is to come. */
  isFinal: boolean;
};
export type Answer<T> = Shown<T> & { refresh: () => void };

const EVERY_MS = 4_000;
/** While the gateway tells of changes, the page asks so seldom without one: for what the gateway does not watch. */
const SELDOM_MS = 60_000;
/** The page waits this many times as long as the last answer took, so that it never asks for more than a tenth of the time. */
const REST = 10;

type Question<T> = {
  /** Names the question: another one begins anew. */
  key: string;
  /** Gets the answer before, so that it can ask only for what is new. */
  ask: (client: TrialgateClient, before: T | null, signal: AbortSignal) => Promise<T>;
  /** True when nothing more is to come after this answer. */
  isFinal?: (value: T) => boolean;
  /** Returns the run whose changes change the answer; null: the page asks again after a while. */
  runOf?: (value: T) => string | null;
  /** True for a question that costs much: a person asks again after it took too long. */
  isCostly?: boolean;
};

/** Asks the gateway again while the tab is visible, when the gateway tells of a change or else after a while, until an answer is final. */
export function useAnswer<T>({
  key,
  ask,
  isFinal = () => false,
  runOf = () => null,
  isCostly = false,
}: Question<T>): Answer<T> {
  const { client, refuseKey } = useSession();
  const [asked, setAsked] = useState(0);
  const [answer, setAnswer] = useState<Shown<T> & { key: string }>({ key, ...NOTHING });
  useEffect(() => {
    const ended = new AbortController();
    const { signal } = ended;
    let before: T | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isWaiting = false;
    /** True when the gateway told of a change after the last question. */
    let isOld = false;
    /** The time before which the page does not ask again. */
    let earliest = 0;
    /** True when the last question was refused because others were asking. */
    let isCrowded = false;
    let stream: RunStream | null = null;
    const wait = (): void => {
      if (!isWaiting) return;
      clearTimeout(timer);
      const rest = Math.max(0, earliest - performance.now());
      timer = setTimeout(() => void next(), stream?.isLive && !isOld ? Math.max(rest, SELDOM_MS) : rest);
    };
    const listen = (runId: string | null): void => {
      if (runId === (stream?.runId ?? null)) return;
      stream?.close();
      const onCut = (): void => {
        earliest = Math.max(earliest, performance.now() + spread());
        wait();
      };
      const onChange = (): void => {
        if (isOld) return;
        isOld = true;
        onCut();
      };
      stream = runId === null ? null : new RunStream({ client, runId, onChange, onCut });
    };
    const next = async (): Promise<void> => {
      isWaiting = false;
      isOld = false;
      const start = performance.now();
      let isLast = false;
      if (!document.hidden) {
        try {
          const value: T = reuse(before, await ask(client, before, signal));
          if (signal.aborted) return;
          before = value;
          isCrowded = false;
          isLast = isFinal(value);
          listen(isLast ? null : runOf(value));
          setAnswer({ key, value, trouble: null, isFinal: isLast });
        } catch (error) {
          if (signal.aborted) return;
          if (error instanceof TrialgateApiError && (error.status === 401 || error.status === 403))
            return refuseKey(error.message);
          isLast =
            error instanceof TrialgateApiError &&
            (FINAL.has(error.status) || (isCostly && error.code === 'query_too_slow'));
          isOld = true;
          const wasCrowded = isCrowded;
          isCrowded = error instanceof TrialgateApiError && error.code === 'too_many_readers';
          const trouble = troubleOf(error);
          if (wasCrowded || !isCrowded)
            setAnswer((shown) => ({ key, value: shown.key === key ? shown.value : null, trouble, isFinal: isLast }));
        }
      }
      if (isLast) return listen(null);
      isWaiting = true;
      earliest = performance.now() + Math.max(EVERY_MS, REST * (performance.now() - start)) + (isOld ? spread() : 0);
      wait();
    };
    void next();
    const seen = (): void => {
      if (document.hidden || !isWaiting) return;
      clearTimeout(timer);
      void next();
    };
    document.addEventListener('visibilitychange', seen);
    return () => {
      ended.abort();
      stream?.close();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
    };
    // `ask`, `isFinal` and `runOf` are made anew at each drawing; `key` says when they differ.
    // oxlint-disable-next-line react-hooks/exhaustive-deps
  }, [key, client, asked]);
  const shown = answer.key === key ? answer : NOTHING;
  return { ...shown, refresh: () => setAsked((times) => times + 1) };
}

const NOTHING = { value: null, trouble: null, isFinal: false };

/** The same question gets the same refusal again: there is no such thing, it is asked wrongly, or it is too large. */
const FINAL: ReadonlySet<number> = new Set([400, 404, 413]);

function troubleOf(error: unknown): string {
  if (!(error instanceof TrialgateApiError))
    return 'The gateway cannot be reached. This page asks again every few seconds.';
  if (error.code === 'store_unavailable')
    return 'The database cannot be reached. This page asks again every few seconds.';
  return error.message;
}
