/** Reports when an awaited promise has been silent for `ms`. One timer serves many waits. */
export class IdleWatch {
  readonly #ms: number;
  readonly #onSilent: () => void;
  #waits = 0;
  #isStopped = false;
  #heardAt = 0;
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(ms: number, onSilent: () => void) {
    this.#ms = ms;
    this.#onSilent = onSilent;
  }

  async while<T>(answer: Promise<T>): Promise<T> {
    this.begin();
    try {
      return await answer;
    } finally {
      this.end();
    }
  }

  begin(): void {
    if (this.#isStopped) return;
    this.#waits += 1;
    this.#heardAt = Date.now();
    this.#timer ??= setTimeout(this.#check, this.#ms);
  }

  end(): void {
    this.#waits -= 1;
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }

  readonly #check = (): void => {
    const left = this.#waits > 0 ? this.#heardAt + this.#ms - Date.now() : this.#ms;
    this.#timer = setTimeout(this.#check, left > 0 ? left : this.#ms);
    if (left <= 0) this.#onSilent();
  };
}
