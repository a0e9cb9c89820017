import type { TrialFilter } from '../../../clients/typescript/client.ts';
import { useSearchChange } from '../use-search-change.ts';

const OUTCOMES = [
  'scored',
  'truncated',
  'timed_out',
  'agent_error',
  'verifier_error',
  'infra_error',
  'cancelled',
  'open',
];
const NAMES = ['outcome', 'agent', 'reward_min', 'reward_max'] as const;

/** Returns the filter that an address has. The gateway says what is wrong with it. */
export function filterOf(search: URLSearchParams): TrialFilter {
  const textOf = (name: string): string | undefined => search.get(name) || undefined;
  const numberOf = (name: string): number | undefined => {
    const text = textOf(name);
    return text === undefined ? undefined : Number(text);
  };
  return {
    outcome: textOf('outcome'),
    agent: textOf('agent'),
    reward_min: numberOf('reward_min'),
    reward_max: numberOf('reward_max'),
  };
}

export const isFiltered = (filter: TrialFilter): boolean => NAMES.some((name) => filter[name] !== undefined);

/** Chooses which trials a view shows. The choice is in the address. */
export function TrialFilterForm() {
  const [search, change] = useSearchChange();
  const outcome = search.get('outcome') ?? '';
  const set = (name: string, value: string): void =>
    change((params) => (value.trim() === '' ? params.delete(name) : params.set(name, value.trim())));
  return (
    <form
      // Other values of the address, as after a click on "Show all", are shown too.
      key={NAMES.map((name) => search.get(name)).join('\n')}
      className="line tools"
      aria-label="Trials to show"
      onSubmit={(event) => {
        event.preventDefault();
        const given = new FormData(event.currentTarget);
        change((params) => {
          for (const name of NAMES) {
            const value = given.get(name);
            if (typeof value === 'string' && value.trim() !== '') params.set(name, value.trim());
            else params.delete(name);
          }
        });
      }}
    >
      <label>
        Outcome{' '}
        <select name="outcome" value={outcome} onChange={(event) => set('outcome', event.target.value)}>
          <option value="">any</option>
          {[...new Set([...OUTCOMES, ...(outcome === '' ? [] : [outcome])])].map((name) => (
            <option key={name} value={name}>
              {name.replaceAll('_', ' ')}
            </option>
          ))}
        </select>
      </label>
      <label>
        Agent <input name="agent" size={12} defaultValue={search.get('agent') ?? ''} />
      </label>
      <label>
        Reward from{' '}
        <input name="reward_min" size={5} inputMode="decimal" defaultValue={search.get('reward_min') ?? ''} />
      </label>
      <label>
        to <input name="reward_max" size={5} inputMode="decimal" defaultValue={search.get('reward_max') ?? ''} />
      </label>
      <button type="submit">Filter</button>
      {isFiltered(filterOf(search)) && (
        <button
          type="button"
          className="quiet"
          onClick={() =>
            change((params) => {
              for (const name of NAMES) params.delete(name);
            })
          }
        >
          Show all
        </button>
      )}
    </form>
  );
}
