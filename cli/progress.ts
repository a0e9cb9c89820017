import type { StackState } from './supervisor/state.ts';

/** On a terminal, one line that is overwritten; elsewhere, a log line whenever `news` changes, and the whole text after each pause without news. */
export type ProgressLine = {
  show(text: string, news?: string): void;
  /** Prints a line that stays. */
  print(text: string): void;
  end(): void;
};

/** What is needed of standard error. */
type Output = { isTTY?: boolean; columns?: number; write(text: string): unknown };

/** In a log, silence for longer than this would look as if nothing happened. */
const REPEAT_MS = 30_000;

export function progressLine(stream: Output = process.stderr, repeatMs = REPEAT_MS): ProgressLine {
  let text = '';
  let lastNews = '';
  let loggedAt = 0;
  const draw = (): void => {
    const line = `${'⠋⠙⠹⠸⠼⠴⠦⠧'[Math.floor(Date.now() / 120) % 8]} ${elapsed()} ${text}`;
    stream.write(`\r\u001b[K${line.slice(0, Math.max((stream.columns ?? 80) - 1, 20))}`);
  };
  const log = (entry: string): void => {
    stream.write(`${elapsed()} ${entry}\n`);
    loggedAt = Date.now();
  };
  const timer = stream.isTTY ? setInterval(draw, 120).unref() : null;
  return {
    show(next, news = next) {
      text = next;
      if (timer) draw();
      else if (news !== lastNews) log(news);
      else if (Date.now() - loggedAt >= repeatMs) log(next);
      lastNews = news;
    },
    print(line) {
      stream.write(`${timer ? '\r\u001b[K' : ''}${elapsed()} ${line}\n`);
    },
    end() {
      if (!timer) return;
      clearInterval(timer);
      stream.write('\r\u001b[K');
    },
  };
}

/** Counts from the start of the command, so that the time goes on from one phase to the next. */
const elapsed = (): string => `[${process.uptime().toFixed(0).padStart(3)} s]`;

/** Shows the components of a starting stack. */
export function stackProgress(stream?: Output): { show(state: StackState): void; end(): void } {
  let line: ProgressLine | null = null;
  const known = new Map<string, string>();
  let news = '';
  return {
    show(state) {
      line ??= progressLine(stream);
      const open = state.components.filter(({ status }) => status !== 'ready');
      const summary = `starting: ${open.map(({ name, status }) => (status === 'starting' ? name : `${name} (${status})`)).join(', ')}`;
      const changed = state.components.filter(({ name, status }) => known.get(name) !== status);
      for (const { name, status } of changed) known.set(name, status);
      const reported = changed.filter(({ status }) => status !== 'waiting');
      if (reported.length)
        news = reported.map(({ name, status, detail }) => `${name} ${status}${detail ? `: ${detail}` : ''}`).join(', ');
      if (state.components.length === 0) line.show('starting: the supervisor');
      else if (open.length === 0) line.show('all ready');
      else if (news !== '') line.show(summary, news);
    },
    end: () => line?.end(),
  };
}
