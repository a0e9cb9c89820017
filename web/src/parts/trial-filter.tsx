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
  const given = (name: (typeof NAMES)[number]): string => search.get(name) ?? '';
  const outcome = given('outcome');
  return (
    <form
      className="line tools"
      aria-label="Trials to show"
      onSubmit={(event) => {
        event.preventDefault();
        const data = new FormData(event.currentTarget);
        change((params) => {
          for (const name of NAMES) {
            const value = data.get(name);
            if (typeof value === 'string' && value.trim() !== '') params.set(name, value.trim());
            else params.delete(name);
          }
        });
      }}
    >
      <label>
        Outcome{' '}
        <select name="outcome" value={outcome} onChange={(event) => event.target.form?.requestSubmit()}>
          <option value="">any</option>
          {[...new Set([...OUTCOMES, ...(outcome === '' ? [] : [outcome])])].map((name) => (
            <option key={name} value={name}>
              {name.replaceAll('_', ' ')}
            </option>
          ))}
        </select>
      </label>
      {/* An input begins anew with another value of the address, as after a click on "Show all"; one that is being typed stays. */}
      <label>
        Agent <input key={given('agent')} name="agent" defaultValue={given('agent')} size={12} />
      </label>
      <label>
        Reward from{' '}
        <input
          key={given('reward_min')}
          name="reward_min"
          defaultValue={given('reward_min')}
          size={5}
          inputMode="decimal"
        />
      </label>
      <label>
        to{' '}
        <input
          key={given('reward_max')}
          name="reward_max"
          defaultValue={given('reward_max')}
          size={5}
          inputMode="decimal"
        />
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
