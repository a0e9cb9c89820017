import type { StackState } from './supervisor/state.ts';

/** On a terminal, one line that is overwritten; elsewhere, a log line whenever `news` changes. */
export type ProgressLine = {
  show(text: string, news?: string): void;
  /** Prints a line that stays. */
  print(text: string): void;
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
    print(line) {
      stream.write(`${timer ? '\r\u001b[K' : ''}${elapsed(started)} ${line}\n`);
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
      const reported = changed.filter(({ status }) => status !== 'waiting');
      if (open.length === 0) line.show(state.status === 'ready' ? 'all ready' : 'starting');
      else if (reported.length)
        line.show(
          summary,
          reported.map(({ name, status, detail }) => `${name} ${status}${detail ? `: ${detail}` : ''}`).join(', '),
        );
    },
    end: () => line?.end(),
  };
}
