import { parseObject } from '../json.ts';
import type { ToolCall } from './message-parts.ts';

/**
 * Puts the parts of a stream's tool calls into the order in which protocols show them: one whole call after another. An engine may send
 * parts of several calls in turns. What comes of another call waits until the arguments of the open one are a whole object, or the end.
 */
export class CallsInOrder {
  #open: ToolCall | null = null;
  readonly #closed = new Set<number>();
  readonly #waiting = new Map<number, ToolCall>();

  /** Returns the parts that are shown now. */
  add(part: ToolCall): ToolCall[] {
    const { index, name } = part;
    const open = this.#open;
    if (open?.index === index) {
      open.arguments += part.arguments;
      return [part, ...(this.#waiting.size > 0 && isWhole(open) ? this.#next() : [])];
    }
    const known = this.#waiting.get(index);
    if (known) known.arguments += part.arguments;
    // The rest of a call that has no beginning, or that is shown already, has no place.
    if (known || name === null || this.#closed.has(index)) return [];
    this.#waiting.set(index, { ...part });
    return open === null || isWhole(open) ? this.#next() : [];
  }

  /** Returns the parts that waited. */
  end(): ToolCall[] {
    const waited = [...this.#waiting.values()];
    this.#waiting.clear();
    return waited;
  }

  #next(): ToolCall[] {
    const shown: ToolCall[] = [];
    for (const [index, call] of this.#waiting) {
      if (this.#open && !isWhole(this.#open)) break;
      if (this.#open) this.#closed.add(this.#open.index);
      this.#waiting.delete(index);
      this.#open = call;
      shown.push({ ...call });
    }
    return shown;
  }
}

/** Most parts do not end an object, so most are not parsed. */
const isWhole = ({ arguments: given }: ToolCall): boolean =>
  given.trimEnd().endsWith('}') && parseObject(given) !== null;
