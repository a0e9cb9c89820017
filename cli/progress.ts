import type { StackState } from './supervisor/state.ts';

/** One line that is written over on a terminal; elsewhere a log line whenever `text` has news. */
export type ProgressLine = {
  show(text: string, news?: string): void;
  /** A line that stays. */
  tell(news: string): void;
  end(): void;
};

export function progressLine(stream: NodeJS.WriteStream = process.stderr): ProgressLine {
  const started = Date.now();
  let text = '';
  let lastNews = '';
  const draw = (): void => {
    const line = `${'⠋⠙⠹⠸⠼⠴⠦⠧'[Math.floor(Date.now() / 120) % 8]} ${elapsed(started)} ${text}`;
    stream.write(`\r\u001b[K${line.slice(0, Math.max((stream.columns ?? 80) - 1, 20))}`);
  };
  const timer = stream.isTTY ? setInterval(draw, 120).unref() : null;
  return {
    show(next, news = next) {
      text = next;
      if (timer) draw();
      else if (news !== lastNews) stream.write(`${elapsed(started)} ${news}\n`);
      lastNews = news;
    },
    tell(news) {
      stream.write(`${timer ? '\r\u001b[K' : ''}${elapsed(started)} ${news}\n`);
    },
    end() {
      if (!timer) return;
      clearInterval(timer);
      stream.write('\r\u001b[K');
    },
  };
}

const elapsed = (since: number): string => `[${((Date.now() - since) / 1000).toFixed(0).padStart(3)} s]`;

/** Shows the components of a starting stack. */
export function stackProgress(stream?: NodeJS.WriteStream): { show(state: StackState): void; end(): void } {
  let line: ProgressLine | null = null;
  const known = new Map<string, string>();
  return {
    show(state) {
      line ??= progressLine(stream);
      const open = state.components.filter(({ status }) => status !== 'ready');
      const summary = `starting: ${open.map(({ name, status }) => (status === 'starting' ? name : `${name} (${status})`)).join(', ')}`;
      const changed = state.components.filter(({ name, status }) => known.get(name) !== status);
      for (const { name, status } of changed) known.set(name, status);
      const told = changed.filter(({ status }) => status !== 'waiting');
      if (open.length === 0) line.show(state.status === 'ready' ? 'all ready' : 'starting');
      else if (told.length) line.show(summary, told.map(({ name, status, detail }) => `${name} ${status}${detail ? `: ${detail}` : ''}`).join(', '));
    },
    end: () => line?.end(),
  };
}
