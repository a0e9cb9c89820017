import { Refusal } from './requests.ts';

type Adapter = { name: string; path: string };

const DISABLED = 'LoRA is not enabled. Please set `--enable-lora` to enable LoRA.';

/** The LoRA adapters of a server: those that are loaded, and those that were, which a request loads again from where they came. */
export class Adapters {
  /** `--enable-lora`. */
  isEnabled = false;
  /** `--max-loaded-loras`. */
  mostLoaded = Infinity;
  /** The one that was used least recently comes first. */
  #loaded: Adapter[] = [];
  readonly #known = new Map<string, Adapter>();

  get loaded(): readonly Adapter[] {
    return this.#loaded;
  }

  /** Returns why it is not loaded, or null. */
  load({ lora_name: name, lora_path: path }: Record<string, unknown>): string | null {
    if (!this.isEnabled) return DISABLED;
    if (typeof name !== 'string' || typeof path !== 'string') return 'lora_name: Field required';
    if (this.#loaded.some((each) => each.name === name)) return `${name} is already loaded.`;
    const adapter = { name, path };
    this.#known.set(name, adapter);
    this.#loaded = [...this.#loaded, adapter].slice(-this.mostLoaded);
    return null;
  }

  unload({ lora_name: name }: Record<string, unknown>): string | null {
    if (!this.isEnabled) return DISABLED;
    if (!this.#loaded.some((each) => each.name === name)) return `LoRA with name ${String(name)} does not exist.`;
    this.#loaded = this.#loaded.filter((each) => each.name !== name);
    return null;
  }

  /** Forgets all, as a server does that is started again. */
  forget(): void {
    this.#loaded = [];
    this.#known.clear();
  }

  /** Throws when a request asks for an adapter that was never loaded. Loads one again that was unloaded. */
  check(name: string | null): void {
    if (name === null) return;
    if (!this.isEnabled) throw new Refusal(`LoRA adapter '${name}' was requested, but LoRA is not enabled.`);
    const adapter = this.#known.get(name);
    if (!adapter) throw new Refusal(`Got LoRA adapter that has never been loaded: ${name}`);
    this.#loaded = [...this.#loaded.filter((each) => each !== adapter), adapter].slice(-this.mostLoaded);
  }
}
