import { useSearchParams } from 'wouter';

type Change = (changed: (params: URLSearchParams) => void) => void;

/** Returns the parameters of the address, and a function that changes them without a new entry in the browser's history. */
export function useSearchChange(): [URLSearchParams, Change] {
  const [search, setSearch] = useSearchParams();
  const change: Change = (changed) =>
    setSearch(
      (before) => {
        const after = new URLSearchParams(before);
        changed(after);
        return after;
      },
      { replace: true },
    );
  return [search, change];
}
