const NAME = 'trialgate-admin-key';

/** The key of a tab whose browser keeps nothing for pages, until it is loaded again. */
let unkept: string | null = null;

/** The admin key of this tab. The browser forgets it when the tab is closed. */
export function readKey(): string | null {
  try {
    return sessionStorage.getItem(NAME) ?? unkept;
  } catch {
    return unkept;
  }
}

export function keepKey(key: string): void {
  unkept = key;
  try {
    sessionStorage.setItem(NAME, key);
  } catch {
    // A browser may forbid it by its settings.
  }
}

export function forgetKey(): void {
  unkept = null;
  try {
    sessionStorage.removeItem(NAME);
  } catch {
    // Then it has none.
  }
}

/** Takes the key out of an address that `trialgate open` printed (`#key=…`), and tells if there was one. The part after `#` never reaches a server. */
export function takeKeyFromAddress(): boolean {
  const key = new URLSearchParams(location.hash.slice(1)).get('key');
  if (key === null) return false;
  keepKey(key);
  history.replaceState(null, '', location.pathname + location.search);
  return true;
}
